// SPDX-License-Identifier: Apache-2.0
// Stage `cast`: code = FP8(x * scale), round to nearest even, saturating.
#pragma once

#include "sm90/ptx/convert.cuh"
#include "sm90/quantize/row_tile.cuh"

namespace octavo::sm90 {

/// Four codes, the first in the low byte.
__device__ inline std::uint32_t cast4(float a, float b, float c, float d, bool e5m2) {
  if (e5m2) {
    return ptx::cvt_e5m2x2(a, b) | static_cast<std::uint32_t>(ptx::cvt_e5m2x2(c, d)) << 16;
  }
  return ptx::cvt_e4m3x2(a, b) | static_cast<std::uint32_t>(ptx::cvt_e4m3x2(c, d)) << 16;
}

/// Eight channels of a row.
__device__ inline uint2 cast_row(const float (&x)[kChannels], float scale, bool e5m2) {
  float y[kChannels];
#pragma unroll
  for (int j = 0; j < kChannels; ++j) y[j] = __fmul_rn(x[j], scale);
  return {cast4(y[0], y[1], y[2], y[3], e5m2), cast4(y[4], y[5], y[6], y[7], e5m2)};
}

}  // namespace octavo::sm90
