// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`, first half: K's mean of each (batch, kv head), of the keys and in the order of
// core/key_mean.h, and its rotation. Elements that are not finite count as 0. A cluster of thread
// blocks has one head, or two where there is an embedding, whose angles then serve both. A thread
// has every second, fourth or eighth key of a run, all of them under way at once, and adds them in
// registers; the sums of runs meet in the shared memory of the cluster's first block.
//
// Few threads, so that blocks of the launch behind, which starts with V and needs no mean, find
// room beside them.
#pragma once

#include <cooperative_groups.h>

#include "sm90/ptx/grid_dependency.cuh"
#include "sm90/quantize/rope.cuh"

namespace octavo::sm90 {

/// A thread has two units of a row: both channels of each pair of an embedding.
template <int kD, int kBytes, int kHeads>
struct MeanShape {
  static constexpr int kRowThreads = kD / (2 * kChannels);
  static constexpr int kOwnKeys = 16 / (kHeads * kBytes);  // of a run: 64 registers of elements
  static constexpr int kLanes =
      static_cast<int>(kMeanRunKeys) / kOwnKeys;  // threads they alternate
  static constexpr int kRunThreads = kRowThreads * kLanes;
  static constexpr int kCluster = [] {
    int blocks = 1;
    while (blocks < 8 && kMeanRuns * kRunThreads > 256 * blocks) blocks *= 2;
    return blocks;
  }();
  static constexpr int kRuns = static_cast<int>(kMeanRuns) / kCluster;  // of a thread block
  static constexpr int kThreads = kRuns * kRunThreads;
  static_assert(kThreads % 32 == 0 && kMeanRunKeys == kMeanLanes);
};

template <int kD, int kHeads>
struct MeanShared {
  float run_sum[kHeads][kMeanRuns][kD];
  float mean[kHeads][kD];
};

/// Which keys of a run a thread has, and which of their channels.
template <int kD, int kBytes, typename Turn>
struct MeanPlace {
  using Shape = MeanShape<kD, kBytes, Turn::kHeads>;
  int run, lane;  // of the block's runs; of the threads that share its keys
  int channel;    // of the first unit
  int apart;      // channels to the second one

  __device__ explicit MeanPlace(const RopeArgs& rope) {
    const int thread = opaque_thread(), own = thread / Shape::kLanes % Shape::kRowThreads;
    run = thread / Shape::kRunThreads;
    lane = thread % Shape::kLanes;
    const int pairs =
        rope.cos != nullptr && !rope.interleaved ? rope.half / kChannels : Shape::kRowThreads;
    // Units `pairs` apart belong together as far as there are; behind them neighbours do.
    channel = (own < pairs ? own : 2 * own) * kChannels;
    apart = (own < pairs ? pairs : 1) * kChannels;
  }
};

/// Both units of one row of one head.
using UnitPair = float[2][kChannels];

struct MeanNoRope {
  static constexpr int kHeads = 1;
  struct Angles {};
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
template <int kBytes, typename Turn, typename Place>
__device__ void load_key(const QuantizeArgs& args, int b, int h, int row, int keys, const Place& at,
                         MeanUnits<kBytes, Turn>& units) {
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

/// Sums of a thread's keys i, i + kStep, i + 2 kStep, .. of a run, as the pairwise additions of
/// core/key_mean.h give them; kStep 1 is all of them.
template <int kBytes, typename Turn, int kStep = 1, typename Place, int kKeys>
__device__ void sum_keys(const QuantizeArgs& args, const Place& at,
                         const MeanUnits<kBytes, Turn> (&units)[kKeys],
                         const typename Turn::Angles (&angles)[kKeys],
                         UnitPair (&sum)[Turn::kHeads], int i = 0) {
  if constexpr (kStep == kKeys) {
#pragma unroll
    for (int n = 0; n < Turn::kHeads; ++n) {
      unpack<kBytes>(units[i][n], args.k.dtype, NoFlip(), sum[n]);
      Turn::turn(args.rope, at, angles[i], sum[n]);
#pragma unroll
      for (auto& unit : sum[n]) {
#pragma unroll
        for (float& x : unit) x = isfinite(x) ? x : 0.0f;
      }
    }
  } else {
    UnitPair other[Turn::kHeads];
    sum_keys<kBytes, Turn, 2 * kStep>(args, at, units, angles, sum, i);
    sum_keys<kBytes, Turn, 2 * kStep>(args, at, units, angles, other, i + kStep);
#pragma unroll
    for (int n = 0; n < Turn::kHeads; ++n) {
#pragma unroll
      for (int j = 0; j < 2 * kChannels; ++j) {
        float& x = sum[n][j / kChannels][j % kChannels];
        x = __fadd_rn(x, other[n][j / kChannels][j % kChannels]);
      }
    }
  }
}

/// The sum of a run, from those of the threads that share its keys, to `out`; a sum of zeros is +0.
template <int kD, typename Turn, typename Place>
__device__ void store_run(const Place& at, UnitPair (&sum)[Turn::kHeads],
                          float (*out)[kMeanRuns][kD], int run) {
#pragma unroll
  for (int n = 0; n < Turn::kHeads; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float(&x)[kChannels] = sum[n][i];
#pragma unroll
      for (float& y : x) {
#pragma unroll
        for (int distance = Place::Shape::kLanes / 2; distance > 0; distance /= 2) {
          y = __fadd_rn(y, __shfl_xor_sync(0xffffffffu, y, distance));
        }
        y = __fadd_rn(0.0f, y);
      }
      if (at.lane != 0) continue;
      auto* to = reinterpret_cast<float4*>(&out[n][run][at.channel + i * at.apart]);
      to[0] = {x[0], x[1], x[2], x[3]};
      to[1] = {x[4], x[5], x[6], x[7]};
    }
  }
}

/// Sum over all runs of one channel: lane j has runs j and j + 16.
template <int kD, int kDistance = 1>
__device__ float sum_of_runs(const float (&runs)[kMeanRuns][kD], int channel, int j = 0) {
  if constexpr (kDistance == kMeanRuns) {
    return runs[j][channel];
  } else {
    return __fadd_rn(sum_of_runs<kD, 2 * kDistance>(runs, channel, j),
                     sum_of_runs<kD, 2 * kDistance>(runs, channel, j + kDistance));
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

/// Means of the cluster's heads from the sums of all runs, with the signs of rotated values.
template <int kD, int kHeads>
__device__ void finish_means(const QuantizeArgs& args, int b, int first, int keys,
                             MeanShared<kD, kHeads>& shared) {
  const int thread = opaque_thread(), threads = static_cast<int>(blockDim.x);
  for (int i = thread; i < kHeads * kD; i += threads) {
    const float sum = sum_of_runs<kD>(shared.run_sum[i / kD], i % kD);
    shared.mean[i / kD][i % kD] =
        keys == 0 ? 0.0f : __fdiv_rn(sum, static_cast<float>(mean_keys(keys)));
  }
  __syncthreads();
  const int head = first + thread / 32;
  if (thread / 32 >= kHeads || head >= args.k.heads) return;
  float(&mean)[kD] = shared.mean[thread / 32];
  if (args.rotate) rotate_by_warp<kD>(args.signs, mean);
  float* out = args.mean + (std::int64_t{b} * args.k.heads + head) * kD;
#pragma unroll
  for (int c = thread % 32; c < kD; c += 32) {
    out[c] = flipped(mean[c], rotation_sign<kD>(args, c));
  }
}

template <int kD, int kBytes, typename Turn>
__global__ void __launch_bounds__(MeanShape<kD, kBytes, Turn::kHeads>::kThreads)
    key_mean_kernel(const __grid_constant__ QuantizeArgs args) {
  constexpr int kHeads = Turn::kHeads;
  using Shape = MeanShape<kD, kBytes, kHeads>;
  extern __shared__ __align__(128) char memory[];
  auto& shared = *reinterpret_cast<MeanShared<kD, kHeads>*>(memory);
  ptx::launch_dependents();
  const auto cluster = cooperative_groups::this_cluster();
  auto started = cluster.barrier_arrive();
  const int groups = (args.k.heads + kHeads - 1) / kHeads;
  const int group = static_cast<int>(blockIdx.x) / Shape::kCluster;
  const int b = group / groups, h = group % groups * kHeads;
  const int keys = valid_keys(args.k, args.lengths, b);
  const MeanPlace<kD, kBytes, Turn> at(args.rope);
  const int run = static_cast<int>(cluster.block_rank()) * Shape::kRuns + at.run;
  const int first = run * static_cast<int>(mean_run_distance(keys)) + at.lane;
  MeanUnits<kBytes, Turn> units[Shape::kOwnKeys];
#pragma unroll
  for (int i = 0; i < Shape::kOwnKeys; ++i) {
    load_key<kBytes, Turn>(args, b, h, first + i * Shape::kLanes, keys, at, units[i]);
  }
  typename Turn::Angles angles[Shape::kOwnKeys];
#pragma unroll
  for (int i = 0; i < Shape::kOwnKeys; ++i) {
    if (keys == 0) continue;  // beyond the last key any angles will do: they turn zeros
    Turn::load(args.rope, at, min(first + i * Shape::kLanes, keys - 1), angles[i]);
  }
  UnitPair sum[kHeads];
  sum_keys<kBytes, Turn>(args, at, units, angles, sum);
  cluster.barrier_wait(std::move(started));  // the others may now write to the first one
  store_run<kD, Turn>(at, sum, cluster.map_shared_rank(shared.run_sum, 0), run);
  cluster.sync();
  if (cluster.block_rank() == 0) finish_means<kD, kHeads>(args, b, h, keys, shared);
}

}  // namespace octavo::sm90
