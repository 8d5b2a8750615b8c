// SPDX-License-Identifier: Apache-2.0
// Stage `rotate`: x <- x D H / sqrt(n) (core/hadamard.h). Distances 1, 2, 4 are within a thread's
// eight channels, the others between lanes of its row.
#pragma once

#include "sm90/quantize/row_tile.cuh"

namespace octavo::sm90 {

/// +1 or -1 for each of a thread's channels.
__device__ inline void load_signs(const SignBits& signs, int channel, float (&sign)[kChannels]) {
  const auto bits = static_cast<unsigned>(signs.word[channel / 64] >> (channel % 64));
#pragma unroll
  for (int j = 0; j < kChannels; ++j) sign[j] = ((bits >> j) & 1u) ? -1.0f : 1.0f;
}

template <int kD>
__device__ void rotate_row(float (&x)[kChannels], const float (&sign)[kChannels], int lane) {
  constexpr int kN = hadamard_size(kD);
#pragma unroll
  for (int j = 0; j < kChannels; ++j) x[j] *= sign[j];
#pragma unroll
  for (int h = 1; h < kChannels; h *= 2) {
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      if (j & h) continue;
      const float a = x[j], b = x[j + h];
      x[j] = __fadd_rn(a, b);
      x[j + h] = __fsub_rn(a, b);
    }
  }
#pragma unroll
  for (int distance = 1; distance < kN / kChannels; distance *= 2) {
    const float own = (lane & distance) ? -1.0f : 1.0f;  // a + b below, a - b above
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      const float other = __shfl_xor_sync(0xffffffffu, x[j], distance);
      x[j] = fmaf(x[j], own, other);
    }
  }
  constexpr float kNorm = hadamard_norm(kN);
#pragma unroll
  for (int j = 0; j < kChannels; ++j) x[j] = __fmul_rn(x[j], kNorm);
}

}  // namespace octavo::sm90
