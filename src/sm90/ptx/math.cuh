// SPDX-License-Identifier: Apache-2.0
// Arithmetic that C++ has no name for. PTX ISA, "ex2", "rcp", "max", "min".
#pragma once

namespace octavo::sm90::ptx {

/// 2^x within 2 ulp; 0 for -inf; results below 2^-126 are 0.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x within one unit in the last place, x and 1 / x normal.
__device__ inline float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The larger; NaN where either is.
__device__ inline float max_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

/// The smaller; NaN where either is.
__device__ inline float min_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

}  // namespace octavo::sm90::ptx
