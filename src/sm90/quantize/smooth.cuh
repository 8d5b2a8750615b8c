// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`: K's mean from the sums of its chunks (key_mean_kernel.cuh), and q . mean.
#pragma once

#include "sm90/quantize/rotate.cuh"

namespace octavo::sm90 {

/// Sum of lanes i, i + kDistance, i + 2 kDistance, .. of one channel, as the pairwise additions at
/// distances 8, 4, 2, 1 give it (core/key_mean.h); kDistance 1 is the whole sum.
template <int kD, int kDistance = 1>
__device__ float lane_tree(const float (*lanes)[kD], int channel, int i = 0) {
  if constexpr (kDistance == kRowLanes) {
    return lanes[i][channel];
  } else {
    return __fadd_rn(lane_tree<kD, 2 * kDistance>(lanes, channel, i),
                     lane_tree<kD, 2 * kDistance>(lanes, channel, i + kDistance));
  }
}

/// Shared memory of mean_of: the lanes' sums, then the mean itself.
template <int kD>
struct MeanStorage {
  float lanes[kRowLanes][kD];
  float mean[kD];
};

/// Leaves the mean of `keys` keys in storage.mean. All threads call; ends synchronised.
template <int kD>
__device__ void mean_of(const float* chunks, int keys, const Place<kD>& at,
                        MeanStorage<kD>& storage) {
  const int count = keys == 0 ? 0 : static_cast<int>(ceil_div(keys, mean_chunk_rows(keys)));
  if (at.active) {
    float sum[kChannels] = {};
    for (int chunk = at.row_lane; chunk < count; chunk += kRowLanes) {
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        sum[j] = __fadd_rn(sum[j], chunks[chunk * kD + at.channel + j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kChannels; ++j) storage.lanes[at.row_lane][at.channel + j] = sum[j];
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < kD; c += TileShape<kD>::kThreads) {
    const float sum = lane_tree<kD>(storage.lanes, c);
    storage.mean[c] = keys == 0 ? 0.0f : __fdiv_rn(sum, static_cast<float>(keys));
  }
  __syncthreads();
}

/// x . mean of one row from the pairs of its four threads, by fused multiply-adds in order of
/// channels, then (0 + 1) + (2 + 3); each of the four gets the sum (core/key_mean.h).
template <int kD>
__device__ float dot_mean(const Pairs<kD>& y, const PairConstants* constants, int l) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Pairs<kD>::kCount; ++i) {
    const PairConstants& c = constants[i * kThreadsPerRow + l];
    sum = fmaf(y.x[i][0], c.mean[0], sum);
    sum = fmaf(y.x[i][1], c.mean[1], sum);
  }
  sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
  return __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
}

}  // namespace octavo::sm90
