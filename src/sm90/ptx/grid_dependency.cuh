// SPDX-License-Identifier: Apache-2.0
// Launches that overlap the one before. PTX ISA, "griddepcontrol".
#pragma once

namespace octavo::sm90::ptx {

/// The next launch in the stream may start once every thread block has said so or ended.
__device__ inline void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;"); }

/// Waits until the launch before this one has ended and its stores are visible; nothing where this
/// launch does not overlap it.
__device__ inline void wait_for_launch_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace octavo::sm90::ptx
