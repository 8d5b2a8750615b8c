// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`, second half: K - mean, and q . mean, which LSE gets back. Rows and mean are
// rotated both or neither, and have the same signs.
#pragma once

#include "sm90/quantize/rotate.cuh"

namespace octavo::sm90 {

/// K's mean of one head.
template <int kD>
using ChannelMeans = ChannelConstants<kD, float>;

template <int kD>
__device__ void subtract_mean(const RowPlace<kD>& at, const ChannelMeans<kD>& mean,
                              Rows<kD>& rows) {
#pragma unroll
  for (int k = 0; k < Rows<kD>::kUnits; ++k) {
    float m[kChannels];
    load8(mean.value + mean.at(at.first_channel()) + mean.at(RowPlace<kD>::channel_step(k)), m);
#pragma unroll
    for (int i = 0; i < Rows<kD>::kCount; ++i) {
#pragma unroll
      for (int j = 0; j < kChannels; ++j) rows.x[i][k][j] = __fsub_rn(rows.x[i][k][j], m[j]);
    }
  }
}

/// x . mean of each row: fused multiply-adds in each thread's order of channels, then
/// (0 + 1) + (2 + 3); each of a row's four threads gets the sum (core/key_mean.h).
template <int kD>
__device__ void dot_mean(const RowPlace<kD>& at, const ChannelMeans<kD>& mean, const Rows<kD>& rows,
                         float (&sum)[Rows<kD>::kCount]) {
#pragma unroll
  for (float& x : sum) x = 0;
#pragma unroll
  for (int k = 0; k < Rows<kD>::kUnits; ++k) {
    float m[kChannels];
    load8(mean.value + mean.at(at.first_channel()) + mean.at(RowPlace<kD>::channel_step(k)), m);
#pragma unroll
    for (int i = 0; i < Rows<kD>::kCount; ++i) {
#pragma unroll
      for (int j = 0; j < kChannels; ++j) sum[i] = fmaf(rows.x[i][k][j], m[j], sum[i]);
    }
  }
#pragma unroll
  for (float& x : sum) {
    x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 1));
    x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 2));
  }
}

}  // namespace octavo::sm90
