// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace octavo::sm90::ptx {

/// The same value, unknown to the compiler: what is computed from it inside a loop stays there
/// instead of being kept in registers across the loop. No instruction.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// A branch that is never taken, which the compiler does not know: it moves no arithmetic across.
/// Keeps arithmetic before a later matrix product, so that registers of both need not exist at a
/// time.
__device__ inline void order_point(bool never) {
  if (never) asm volatile("nanosleep.u32 0;" ::: "memory");
}

}  // namespace octavo::sm90::ptx
