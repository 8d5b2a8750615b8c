// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace octavo::sm90::ptx {

/// The same value, unknown to the compiler: what is computed from it inside a loop stays there
/// instead of being kept in registers across the loop. No instruction.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace octavo::sm90::ptx
