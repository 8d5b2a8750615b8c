// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`, first half: K's mean of each (batch, kv head), in the order of core/key_mean.h.
// Elements that are not finite count as 0. A cluster of eight thread blocks has one head; each
// block's groups of 16 lanes of threads sum chunks and leave the sums in the shared memory of block
// 0, which adds them up.
#pragma once

#include <cooperative_groups.h>

#include "sm90/ptx/grid_dependency.cuh"
#include "sm90/quantize/rope.cuh"

namespace octavo::sm90 {

inline constexpr int kMeanCluster = 8;

template <int kD>
struct MeanShape {
  static constexpr int kLanes = kD <= 64 ? 8 : (kD <= 128 ? 16 : 32);  // threads a row, one a unit
  static constexpr int kGroupThreads = static_cast<int>(kMeanLanes) * kLanes;
  static constexpr int kGroups = kGroupThreads <= 256 ? 2 : 1;  // chunks at a time
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kAtOnce = kMeanCluster * kGroups;
  static_assert(kMeanChunks % kAtOnce == 0);
};

/// Which rows and channels of a chunk a thread adds up.
template <int kD>
struct MeanPlace {
  using Shape = MeanShape<kD>;
  int group = static_cast<int>(threadIdx.x) / Shape::kGroupThreads;
  int row_lane = static_cast<int>(threadIdx.x) % Shape::kGroupThreads / Shape::kLanes;
  int lane = static_cast<int>(threadIdx.x) % Shape::kLanes;  // those past kD / 8 idle
  int channel = lane * kChannels;
};

struct MeanNoRope {
  static constexpr int kBlocks = 2;  // a multiprocessor: leaves room for V's
  template <int kD>
  __device__ void turn(const RopeArgs&, const MeanPlace<kD>&, int, float (&)[kChannels]) const {}
};

/// Angles straight from memory: the same for all heads, they stay in the caches.
struct MeanWithRope {
  static constexpr int kBlocks = 1;
  template <int kD>
  __device__ void turn(const RopeArgs& rope, const MeanPlace<kD>& at, int row,
                       float (&x)[kChannels]) const {
    const bool turns = at.channel < 2 * rope.half;
    const std::int64_t position = rope.k_offset + row;
    if (rope.interleaved) {
      if (!turns) return;
      const std::int64_t i = at.channel / 2;
      const float4 c = table_values(rope.cos, rope, position * rope.cos_stride + i);
      const float4 s = table_values(rope.sin, rope, position * rope.sin_stride + i);
      turn_pair(x[0], x[1], c.x, s.x);
      turn_pair(x[2], x[3], c.y, s.y);
      turn_pair(x[4], x[5], c.z, s.z);
      turn_pair(x[6], x[7], c.w, s.w);
      return;
    }
    const bool lower = at.channel < rope.half;
    const std::int64_t i = turns ? (lower ? at.channel : at.channel - rope.half) : 0;
    const int distance = rope.half / kChannels;
    const int partner = turns ? (lower ? at.lane + distance : at.lane - distance) : at.lane;
#pragma unroll
    for (int j = 0; j < kChannels; j += 4) {
      const float4 c = table_values(rope.cos, rope, position * rope.cos_stride + i + j);
      const float4 s = table_values(rope.sin, rope, position * rope.sin_stride + i + j);
      turn_with_partner<kD>(x[j], partner, turns, lower, c.x, s.x);
      turn_with_partner<kD>(x[j + 1], partner, turns, lower, c.y, s.y);
      turn_with_partner<kD>(x[j + 2], partner, turns, lower, c.z, s.z);
      turn_with_partner<kD>(x[j + 3], partner, turns, lower, c.w, s.w);
    }
  }

 private:
  /// All lanes of a warp call.
  template <int kD>
  static __device__ void turn_with_partner(float& x, int partner, bool turns, bool lower, float cos,
                                           float sin) {
    const float other = __shfl_sync(0xffffffffu, x, partner, MeanShape<kD>::kLanes);
    const float turned = turn_one(x, other, lower, cos, sin);
    if (turns) x = turned;
  }
};

/// What counts: everything, or what is finite.
struct All {
  static __device__ float value(float x) { return x; }
};
struct Finite {
  static __device__ float value(float x) { return isfinite(x) ? x : 0.0f; }
};

/// A thread's rows of one chunk, added up in order. Rows past the end are +0, which changes no sum.
template <int kD, int kBytes, typename Turn, typename Counts>
__device__ void sum_rows(const QuantizeArgs& args, int b, int h, int begin, int end,
                         const MeanPlace<kD>& at, float (&sum)[kChannels]) {
  constexpr int kRows = 16 / kBytes, kStep = static_cast<int>(kMeanLanes);  // rows loaded at once
  const RowBlock all{b, h, 0, end, 0};
#pragma unroll
  for (float& s : sum) s = 0;
  for (int first = begin + at.row_lane; first - at.row_lane < end; first += kRows * kStep) {
    Unit<kBytes> unit[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kStep;
      unit[i] = {};
      if (row < end && at.channel < args.k.d) {
        unit[i] =
            load_unit<kBytes>(element<kBytes>(args.k, all, row, at.channel), args.k.wide_loads);
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float x[1][kChannels];
      unpack<kBytes>({unit[i]}, args.k.dtype, x);
      Turn().template turn<kD>(args.rope, at, min(first + i * kStep, end - 1), x[0]);
#pragma unroll
      for (int j = 0; j < kChannels; ++j) sum[j] = __fadd_rn(sum[j], Counts::value(x[0][j]));
    }
  }
}

/// Sum of lanes i, i + kDistance, i + 2 kDistance, .. of one channel, as the pairwise additions at
/// distances 8, 4, 2, 1 give it (core/key_mean.h); kDistance 1 is the whole sum.
template <int kD, int kDistance = 1>
__device__ float lane_tree(const float (*lanes)[kD], int channel, int i = 0) {
  if constexpr (kDistance == kMeanLanes) {
    return lanes[i][channel];
  } else {
    return __fadd_rn(lane_tree<kD, 2 * kDistance>(lanes, channel, i),
                     lane_tree<kD, 2 * kDistance>(lanes, channel, i + kDistance));
  }
}

/// Sum of one chunk in this thread's channels, over its rows. A sum that is not finite is worked
/// out again without what made it so.
template <int kD, int kBytes, typename Turn>
__device__ void sum_chunk(const QuantizeArgs& args, int b, int h, int begin, int end,
                          const MeanPlace<kD>& at, float (&sum)[kChannels]) {
  sum_rows<kD, kBytes, Turn, All>(args, b, h, begin, end, at, sum);
  bool finite = true;
#pragma unroll
  for (float s : sum) finite = finite && isfinite(s);
  if (!__all_sync(0xffffffffu, finite)) {
    sum_rows<kD, kBytes, Turn, Finite>(args, b, h, begin, end, at, sum);
  }
}

template <int kD, int kBytes, typename Turn>
__global__ void __launch_bounds__(MeanShape<kD>::kThreads, Turn::kBlocks)
    key_mean_kernel(const __grid_constant__ QuantizeArgs args) {
  using Shape = MeanShape<kD>;
  __shared__ float lanes[Shape::kGroups][kMeanLanes][kD];
  __shared__ float chunk_sum[kMeanChunks][kD];
  ptx::launch_dependents();
  const auto cluster = cooperative_groups::this_cluster();
  const int head = static_cast<int>(blockIdx.x) / kMeanCluster;
  const int b = head / args.k.heads, h = head % args.k.heads;
  const int keys = valid_keys(args.k, args.lengths, b);
  const int chunk_rows = static_cast<int>(mean_chunk_rows(keys));
  const int thread = static_cast<int>(threadIdx.x);
  const MeanPlace<kD> at;
  for (int i = thread; i < kMeanChunks * kD; i += Shape::kThreads) chunk_sum[i / kD][i % kD] = 0;
  cluster.sync();  // before the others write to block 0
  for (int round = 0; round < kMeanChunks; round += Shape::kAtOnce) {
    if (round * chunk_rows >= keys) break;
    const int first_chunk = round + static_cast<int>(cluster.block_rank());
    const int begin = (first_chunk + kMeanCluster * at.group) * chunk_rows;
    float sum[kChannels];
    sum_chunk<kD, kBytes, Turn>(args, b, h, begin, begin + min(chunk_rows, keys - begin), at, sum);
    if (at.channel < kD) {
#pragma unroll
      for (int j = 0; j < kChannels; ++j) lanes[at.group][at.row_lane][at.channel + j] = sum[j];
    }
    __syncthreads();
    for (int i = thread; i < Shape::kGroups * kD; i += Shape::kThreads) {
      const int group = i / kD, c = i % kD;
      *cluster.map_shared_rank(&chunk_sum[first_chunk + kMeanCluster * group][c], 0) =
          lane_tree<kD>(lanes[group], c);
    }
    __syncthreads();
  }
  cluster.sync();
  if (cluster.block_rank() != 0) return;
  for (int c = thread; c < kD; c += Shape::kThreads) {
    // Lane i has chunks i and i + 16; those that no round reached are 0.
    for (int i = 0; i < kMeanLanes; ++i)
      lanes[0][i][c] = __fadd_rn(chunk_sum[i][c], chunk_sum[i + kMeanLanes][c]);
    const float sum = lane_tree<kD>(lanes[0], c);
    args.mean[static_cast<std::int64_t>(head) * kD + c] =
        keys == 0 ? 0.0f : __fdiv_rn(sum, static_cast<float>(keys));
  }
}

}  // namespace octavo::sm90
