// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`, first half: K's mean of each (batch, kv head), of the keys and in the order of
// core/key_mean.h, and its rotation. Elements that are not finite count as 0. A cluster of eight
// thread blocks has one head, or two where there is an embedding, whose angles then serve both;
// each block's groups of 16 lanes of threads sum runs and leave the sums in the shared memory of
// block 0, which adds them up.
#pragma once

#include <cooperative_groups.h>

#include "sm90/ptx/grid_dependency.cuh"
#include "sm90/quantize/rope.cuh"

namespace octavo::sm90 {

inline constexpr int kMeanCluster = 8;

/// A thread has two units of a row: both channels of each pair of an embedding.
template <int kD, int kHeads>
struct MeanShape {
  static constexpr int kRowThreads = kD / (2 * kChannels);
  static constexpr int kGroupThreads = static_cast<int>(kMeanLanes) * kRowThreads;
  static constexpr int kMostThreads = kD <= 128 ? 256 * kHeads : 256;
  static constexpr int kGroups =  // runs at a time
      4 * kGroupThreads <= kMostThreads ? 4 : (2 * kGroupThreads <= kMostThreads ? 2 : 1);
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kAtOnce = kMeanCluster * kGroups;
  static constexpr int kRounds = static_cast<int>(kMeanRuns) / kAtOnce;
  static_assert(kMeanRuns % kAtOnce == 0 && kMeanRunKeys == kMeanLanes);
};

template <int kD, int kHeads>
struct MeanShared {
  float lanes[MeanShape<kD, kHeads>::kGroups][kHeads][kMeanLanes][kD];
  float run_sum[kHeads][kMeanRuns][kD];
};

/// Which key of a run a thread has, and which of its channels.
template <int kD, typename Turn>
struct MeanPlace {
  using Shape = MeanShape<kD, Turn::kHeads>;
  int group, lane;  // of the runs at a time; the key's
  int channel;      // of the first unit
  int apart;        // channels to the second one

  __device__ explicit MeanPlace(const RopeArgs& rope) {
    const int thread = opaque_thread(), own = thread % Shape::kRowThreads;
    group = thread / Shape::kGroupThreads;
    lane = thread % Shape::kGroupThreads / Shape::kRowThreads;
    const int pairs = Turn::template pairs<kD>(rope);
    channel = (own < pairs ? own : 2 * own) * kChannels;
    apart = (own < pairs ? pairs : 1) * kChannels;
  }
};

/// Both units of one row of one head.
using UnitPair = float[2][kChannels];

struct MeanNoRope {
  static constexpr int kHeads = 1;
  struct Angles {};
  /// Units `pairs` apart belong together as far as there are; behind them neighbours do.
  template <int kD>
  static __device__ int pairs(const RopeArgs&) {
    return MeanShape<kD, kHeads>::kRowThreads;
  }
  template <typename Place>
  static __device__ void load(const RopeArgs&, const Place&, int, Angles&) {}
  template <typename Place>
  static __device__ void turn(const RopeArgs&, const Place&, const Angles&, UnitPair&) {}
};

struct MeanWithRope {
  static constexpr int kHeads = 2;
  struct Angles {
    float4 cos[2], sin[2];
  };

  template <int kD>
  static __device__ int pairs(const RopeArgs& rope) {
    return rope.interleaved ? MeanShape<kD, kHeads>::kRowThreads : rope.half / kChannels;
  }

  /// half_split: of the eight pairs; interleaved: of the four of each unit.
  template <typename Place>
  static __device__ void load(const RopeArgs& rope, const Place& at, int row, Angles& angles) {
    const std::int64_t position = rope.k_offset + row;
    const std::int64_t cos = position * rope.cos_stride, sin = position * rope.sin_stride;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int channel = at.channel + (rope.interleaved ? i * at.apart : 0);
      if (channel >= turned(rope)) continue;
      const int pair = rope.interleaved ? channel / 2 : channel + 4 * i;
      angles.cos[i] = table_values(rope.cos, rope, cos + pair);
      angles.sin[i] = table_values(rope.sin, rope, sin + pair);
    }
  }

  template <typename Place>
  static __device__ void turn(const RopeArgs& rope, const Place& at, const Angles& angles,
                              UnitPair& x) {
    if (rope.interleaved) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (at.channel + i * at.apart >= turned(rope)) continue;
        turn_unit(x[i], angles.cos[i], angles.sin[i]);
      }
    } else if (at.channel < turned(rope)) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 c = angles.cos[i], s = angles.sin[i];
        turn_pair(x[0][4 * i], x[1][4 * i], c.x, s.x);
        turn_pair(x[0][4 * i + 1], x[1][4 * i + 1], c.y, s.y);
        turn_pair(x[0][4 * i + 2], x[1][4 * i + 2], c.z, s.z);
        turn_pair(x[0][4 * i + 3], x[1][4 * i + 3], c.w, s.w);
      }
    }
  }

 private:
  /// Where the channels end that an embedding turns; half_split looks at lower halves only.
  static __device__ int turned(const RopeArgs& rope) {
    return rope.interleaved ? 2 * rope.half : rope.half;
  }
};

/// Both units of a thread of one key of each head.
template <int kBytes, typename Turn>
using MeanUnits = Unit<kBytes>[Turn::kHeads][2];

/// Key `row` of the heads from h on; zeros beyond the last key and channel.
template <int kD, int kBytes, typename Turn>
__device__ void load_key(const QuantizeArgs& args, int b, int h, int row, int keys,
                         const MeanPlace<kD, Turn>& at, MeanUnits<kBytes, Turn>& units) {
  const OperandArgs& k = args.k;
  const char* from = static_cast<const char*>(k.x) +
                     (b * k.stride_b + row * k.stride_s + h * k.stride_h + at.channel) * kBytes;
  // An odd last head is summed twice.
  const std::int64_t to_second_head = h + 1 < k.heads ? k.stride_h * kBytes : 0;
#pragma unroll
  for (int n = 0; n < Turn::kHeads; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      units[n][i] = {};
      if (row >= keys || at.channel + i * at.apart >= k.d) continue;
      units[n][i] =
          load_unit<kBytes>(from + n * to_second_head + i * at.apart * kBytes, k.wide_loads);
    }
  }
}

/// What a thread adds of one key: its lane's share of the run's sum. What is not finite counts as
/// 0.
template <int kD, int kBytes, typename Turn>
__device__ void store_lane(const QuantizeArgs& args, int row, int keys,
                           const MeanPlace<kD, Turn>& at, const MeanUnits<kBytes, Turn>& units,
                           float (&lanes)[Turn::kHeads][kMeanLanes][kD]) {
  typename Turn::Angles angles;
  if (row < keys) Turn::load(args.rope, at, row, angles);
#pragma unroll
  for (int n = 0; n < Turn::kHeads; ++n) {
    UnitPair x;
    unpack<kBytes>(units[n], args.k.dtype, NoFlip(), x);
    if (row < keys) Turn::turn(args.rope, at, angles, x);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float* to = &lanes[n][at.lane][at.channel + i * at.apart];
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        to[j] = isfinite(x[i][j]) ? __fadd_rn(0.0f, x[i][j]) : 0.0f;
      }
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

/// Rotates a row in place; one warp calls. A thread has every 32nd channel.
template <int kD>
__device__ void rotate_by_warp(const SignBits& signs, float (&row)[kD]) {
  constexpr int kOwn = kD / 32, kSize = hadamard_size(kD);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float x[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    x[i] = flipped(row[lane + 32 * i], sign_bit(signs, lane + 32 * i));
  }
  const auto across = [&](int distance) {
    const float sign = (lane & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (float& y : x) y = fmaf(y, sign, __shfl_xor_sync(0xffffffffu, y, distance));
  };
  across(8);
  across(16);
#pragma unroll
  for (int h = 1; h < kSize / 32; h *= 2) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if ((i & h) == 0) butterfly(x[i], x[i + h]);
    }
  }
  for (int h = 1; h < kChannels; h *= 2) across(h);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) row[lane + 32 * i] = x[i];
}

/// Means of the cluster's heads from the sums of all runs.
template <int kD, int kHeads>
__device__ void finish_means(const QuantizeArgs& args, int b, int first, int keys,
                             MeanShared<kD, kHeads>& shared) {
  const int thread = opaque_thread();
  for (int i = thread; i < kHeads * kD; i += MeanShape<kD, kHeads>::kThreads) {
    auto& lanes = shared.lanes[0][i / kD];
    const int c = i % kD;
    // Lane j has runs j and j + 16; those beyond the last key are 0.
    for (int j = 0; j < kMeanLanes; ++j) {
      const auto& runs = shared.run_sum[i / kD];
      lanes[j][c] = __fadd_rn(runs[j][c], runs[j + kMeanLanes][c]);
    }
    const float sum = lane_tree<kD>(lanes, c);
    lanes[0][c] = keys == 0 ? 0.0f : __fdiv_rn(sum, static_cast<float>(mean_keys(keys)));
  }
  __syncthreads();
  const int head = first + thread / 32;
  if (thread / 32 >= kHeads || head >= args.k.heads) return;
  float(&mean)[kD] = shared.lanes[0][thread / 32][0];
  if (args.rotate) rotate_by_warp<kD>(args.signs, mean);
  float* out = args.mean + (std::int64_t{b} * args.k.heads + head) * kD;
#pragma unroll
  for (int c = thread % 32; c < kD; c += 32) out[c] = mean[c];
}

template <int kD, int kBytes, typename Turn>
__global__ void __launch_bounds__(MeanShape<kD, Turn::kHeads>::kThreads)
    key_mean_kernel(const __grid_constant__ QuantizeArgs args) {
  constexpr int kHeads = Turn::kHeads;
  using Shape = MeanShape<kD, kHeads>;
  extern __shared__ __align__(128) char memory[];
  auto& shared = *reinterpret_cast<MeanShared<kD, kHeads>*>(memory);
  ptx::launch_dependents();
  const auto cluster = cooperative_groups::this_cluster();
  auto started = cluster.barrier_arrive();
  const int groups = (args.k.heads + kHeads - 1) / kHeads;
  const int group = static_cast<int>(blockIdx.x) / kMeanCluster;
  const int b = group / groups, h = group % groups * kHeads;
  const int keys = valid_keys(args.k, args.lengths, b);
  const int distance = static_cast<int>(mean_run_distance(keys));
  const MeanPlace<kD, Turn> at(args.rope);
  const auto first_run = [&](int round) {
    return round * Shape::kAtOnce + static_cast<int>(cluster.block_rank());
  };
  const auto key_of = [&](int round) {
    return (first_run(round) + kMeanCluster * at.group) * distance + at.lane;
  };
  MeanUnits<kBytes, Turn> units[Shape::kRounds];
#pragma unroll
  for (int round = 0; round < Shape::kRounds; ++round) {
    load_key<kD, kBytes, Turn>(args, b, h, key_of(round), keys, at, units[round]);
  }
  cluster.barrier_wait(std::move(started));  // the others may now write to block 0
#pragma unroll
  for (int round = 0; round < Shape::kRounds; ++round) {
    store_lane<kD, kBytes, Turn>(args, key_of(round), keys, at, units[round],
                                 shared.lanes[at.group]);
    __syncthreads();
    for (int i = opaque_thread(); i < Shape::kGroups * kHeads * kD; i += Shape::kThreads) {
      const int c = i % kD, n = i / kD % kHeads, g = i / (kD * kHeads);
      *cluster.map_shared_rank(&shared.run_sum[n][first_run(round) + kMeanCluster * g][c], 0) =
          lane_tree<kD>(shared.lanes[g][n], c);
    }
    __syncthreads();
  }
  cluster.sync();
  if (cluster.block_rank() == 0) finish_means<kD, kHeads>(args, b, h, keys, shared);
}

}  // namespace octavo::sm90
