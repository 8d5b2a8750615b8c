// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`, second half: K - mean, and q . mean, which LSE gets back. Rows and mean are
// rotated both or neither.
#pragma once

#include "sm90/quantize/rotate.cuh"

namespace octavo::sm90 {

/// K's mean of one head in shared memory; the padding keeps the threads of a row apart.
template <int kD>
struct ChannelMeans {
  alignas(16) float value[kD + kD / 8];

  static __device__ constexpr int at(int channel) { return channel + channel / 32 * 4; }
};

/// A thread's run of means at `channel`.
template <int kD>
__device__ void load_run(const ChannelMeans<kD>& mean, int channel,
                         float (&m)[TileShape<kD>::kRun]) {
  const float* from = mean.value + mean.at(channel);
#pragma unroll
  for (int c = 0; c < TileShape<kD>::kRun; c += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + c);
    m[c] = four.x, m[c + 1] = four.y, m[c + 2] = four.z, m[c + 3] = four.w;
  }
}

/// Calls visit(run of a row, means of its channels, group, side): each run of means is loaded once
/// where both sides have the same channels.
template <int kD, typename Place, typename Visit>
__device__ void with_means(const Place& at, const ChannelMeans<kD>& mean, Rows<kD>& rows,
                           const Visit& visit) {
  using Shape = TileShape<kD>;
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
    float m[Shape::kRun];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      if (side == 0 || at.channel_step(0, block) != at.channel_step(1, block)) {
        load_run<kD>(mean, at.first_channel() + at.channel_step(side, block), m);
      }
#pragma unroll
      for (int group = 0; group < Shape::kGroups; ++group) {
        visit(rows.x[group][side][block], m, group, side);
      }
    }
  }
}

template <int kD, typename Place>
__device__ void subtract_mean(const Place& at, const ChannelMeans<kD>& mean, Rows<kD>& rows) {
  with_means<kD>(at, mean, rows, [](auto& x, const auto& m, int, int) {
#pragma unroll
    for (int c = 0; c < TileShape<kD>::kRun; ++c) x[c] = __fsub_rn(x[c], m[c]);
  });
}

__device__ inline float add_across(float x, int distance) {
  return __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, distance));
}

/// x . mean of each row, in the parts and the order of core/key_mean.h; each thread of a row gets
/// the sum.
template <int kD, typename Place>
__device__ void dot_mean(const Place& at, const ChannelMeans<kD>& mean, Rows<kD>& rows,
                         float (&sum)[Place::kRows]) {
  constexpr int kGroups = TileShape<kD>::kGroups;
  float part[kGroups][2] = {};
  with_means<kD>(at, mean, rows, [&](const auto& x, const auto& m, int group, int side) {
#pragma unroll
    for (int c = 0; c < TileShape<kD>::kRun; ++c) {
      part[group][side] = fmaf(x[c], m[c], part[group][side]);
    }
  });
#pragma unroll
  for (int i = 0; i < 2 * kGroups; ++i) {
    float& x = part[i / 2][i % 2];
#pragma unroll
    for (int distance = Place::kNear; distance <= Place::kFar; distance *= 2) {
      x = add_across(x, distance);
    }
  }
  // A row's parts are all in one side, or half of them in either.
#pragma unroll
  for (int i = 0; i < Place::kRows; ++i) {
    sum[i] = Place::kRows == kGroups ? __fadd_rn(part[i][0], part[i][1]) : part[i / 2][i % 2];
  }
}

}  // namespace octavo::sm90
