// SPDX-License-Identifier: Apache-2.0
// Stage `cast`: code = FP8(x * scale), round to nearest even, saturating; NaN where x is infinite,
// code 0 for either zero. INT8: core/int8.h.
// The format is a type: it is chosen once a tile.
#pragma once

#include "sm90/ptx/convert.cuh"
#include "sm90/quantize/amax.cuh"

namespace octavo::sm90 {

struct E4m3 {
  static constexpr float kZero = 0.0f;  // the sum with it makes +0 of either zero
  static __device__ std::uint32_t pair(float a, float b) { return ptx::cvt_e4m3x2(a, b); }
};
struct E5m2 {
  static constexpr float kZero = 0.0f;
  static __device__ std::uint32_t pair(float a, float b) { return ptx::cvt_e5m2x2(a, b); }
};
/// The sum with kInt8Zero has the rounded integer in its low byte, -1 where it is NaN.
struct Int8 {
  static constexpr float kZero = kInt8Zero;
};

/// A format where infinities become the NaN code; without this they saturate.
template <typename Format>
struct WithInfinities {
  static constexpr float kZero = Format::kZero;
  static __device__ float nan_for(float y) {
    return fabsf(y) == kInfinity ? __int_as_float(0x7fffffff) : y;
  }
  static __device__ std::uint32_t pair(float a, float b) {
    return Format::pair(nan_for(a), nan_for(b));
  }
};

/// x * scale, to be cast.
template <typename Format>
__device__ float scaled(float x, float scale) {
  return __fmaf_rn(x, scale, Format::kZero);
}

/// Four codes of scaled values, the first in the low byte.
template <typename Format>
__device__ std::uint32_t cast4(float a, float b, float c, float d) {
  return Format::pair(a, b) | Format::pair(c, d) << 16;
}
template <>
__device__ inline std::uint32_t cast4<Int8>(float a, float b, float c, float d) {
  return __byte_perm(__byte_perm(__float_as_uint(a), __float_as_uint(b), 0x0040),
                     __byte_perm(__float_as_uint(c), __float_as_uint(d), 0x0040), 0x5410);
}

/// Neighbouring channels of a row.
template <typename Format, int kCount>
__device__ void cast_run(const float (&x)[kCount], float scale,
                         std::uint32_t (&codes)[kCount / 4]) {
#pragma unroll
  for (int j = 0; j < kCount; j += 4) {
    codes[j / 4] = cast4<Format>(scaled<Format>(x[j], scale), scaled<Format>(x[j + 1], scale),
                                 scaled<Format>(x[j + 2], scale), scaled<Format>(x[j + 3], scale));
  }
}

}  // namespace octavo::sm90
