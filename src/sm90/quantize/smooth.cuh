// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`: the tree of K's mean (key_mean_kernel.cuh) and q . mean.
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
