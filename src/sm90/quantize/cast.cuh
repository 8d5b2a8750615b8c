// SPDX-License-Identifier: Apache-2.0
// Stage `cast`: code = FP8(x * scale), round to nearest even, saturating; NaN where x is infinite,
// code 0 for either zero.
// The format is a type: it is chosen once a tile.
#pragma once

#include "sm90/ptx/convert.cuh"
#include "sm90/quantize/amax.cuh"

namespace octavo::sm90 {

struct E4m3 {
  static __device__ std::uint32_t pair(float a, float b) { return ptx::cvt_e4m3x2(a, b); }
};
struct E5m2 {
  static __device__ std::uint32_t pair(float a, float b) { return ptx::cvt_e5m2x2(a, b); }
};

/// A format where infinities become the NaN code; without this they saturate.
template <typename Format>
struct WithInfinities {
  static __device__ float nan_for(float y) {
    return fabsf(y) == kInfinity ? __int_as_float(0x7fffffff) : y;
  }
  static __device__ std::uint32_t pair(float a, float b) {
    return Format::pair(nan_for(a), nan_for(b));
  }
};

/// Four codes, the first in the low byte.
template <typename Format>
__device__ std::uint32_t cast4(float a, float b, float c, float d) {
  return Format::pair(a, b) | Format::pair(c, d) << 16;
}

/// x * scale; +0 where x is 0.
__device__ inline float scaled(float x, float scale) { return __fmaf_rn(x, scale, 0.0f); }

/// Eight channels of a row.
template <typename Format>
__device__ uint2 cast_unit(const float (&x)[kChannels], float scale) {
  float y[kChannels];
#pragma unroll
  for (int j = 0; j < kChannels; ++j) y[j] = scaled(x[j], scale);
  return {cast4<Format>(y[0], y[1], y[2], y[3]), cast4<Format>(y[4], y[5], y[6], y[7])};
}

}  // namespace octavo::sm90
