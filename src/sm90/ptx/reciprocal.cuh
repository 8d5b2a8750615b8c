// SPDX-License-Identifier: Apache-2.0
// PTX ISA, "rcp".
#pragma once

namespace octavo::sm90::ptx {

/// 1 / x within one unit in the last place, x and 1 / x normal.
__device__ inline float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace octavo::sm90::ptx
