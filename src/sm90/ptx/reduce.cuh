// SPDX-License-Identifier: Apache-2.0
// Reductions over a warp. PTX ISA, "redux.sync".
#pragma once

namespace octavo::sm90::ptx {

/// Largest of a value >= 0 over the 32 lanes, NaN above all: such floats order as their bits do.
__device__ inline float redux_max(float x) {
  unsigned most;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(most) : "r"(__float_as_uint(x)));
  return __uint_as_float(most);
}

}  // namespace octavo::sm90::ptx
