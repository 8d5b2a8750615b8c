// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace octavo::sm90::ptx {

/// The same value, unknown to the compiler: what is computed from it inside a loop stays there
/// instead of being kept in registers across the loop. No instruction.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// A value that all threads of a warp have, and of which the compiler then knows it: what follows
/// from it lives in uniform registers.
__device__ inline int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

}  // namespace octavo::sm90::ptx
