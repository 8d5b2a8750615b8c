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
  static_assert(kMeanRuns % kAtOnce == 0);
};

template <int kD, int kHeads>
struct MeanShared {
  float lanes[MeanShape<kD, kHeads>::kGroups][kHeads][kMeanLanes][kD];
  float run_sum[kHeads][kMeanRuns][kD];
};

/// Which rows and channels of a run a thread adds up.
template <int kD, typename Turn>
struct MeanPlace {
  using Shape = MeanShape<kD, Turn::kHeads>;
  int group, row_lane;
  int channel;  // of the first unit
  int apart;    // channels to the second one

  __device__ explicit MeanPlace(const RopeArgs& rope) {
    const int thread = opaque_thread(), lane = thread % Shape::kRowThreads;
    group = thread / Shape::kGroupThreads;
    row_lane = thread % Shape::kGroupThreads / Shape::kRowThreads;
    const int pairs = Turn::template pairs<kD>(rope);
    channel = (lane < pairs ? lane : 2 * lane) * kChannels;
    apart = (lane < pairs ? pairs : 1) * kChannels;
  }
};

/// Both units of one row of one head.
using UnitPair = float[2][kChannels];

struct MeanNoRope {
  static constexpr int kHeads = 1;
  static constexpr int kDepth = 32;  // bytes a head and thread loads ahead
  struct Angles {};
  /// Units `pairs` apart belong together as far as there are; behind them neighbours do.
  template <int kD>
  static __device__ int pairs(const RopeArgs&) {
    return MeanShape<kD, kHeads>::kRowThreads;
  }
  static __device__ bool aligned(const RopeArgs&) { return true; }
  template <bool kAligned, typename Place>
  static __device__ void load(const RopeArgs&, const Place&, int, Angles&) {}
  template <typename Place>
  static __device__ void turn(const RopeArgs&, const Place&, const Angles&, UnitPair&) {}
};

struct MeanWithRope {
  static constexpr int kHeads = 2;
  static constexpr int kDepth = 16;
  struct Angles {
    float4 cos[2], sin[2];
  };

  template <int kD>
  static __device__ int pairs(const RopeArgs& rope) {
    return rope.interleaved ? MeanShape<kD, kHeads>::kRowThreads : rope.half / kChannels;
  }

  static __device__ bool aligned(const RopeArgs& rope) { return rope.wide_loads; }

  /// half_split: of the eight pairs; interleaved: of the four of each unit.
  template <bool kAligned, typename Place>
  static __device__ void load(const RopeArgs& rope, const Place& at, int row, Angles& angles) {
    const std::int64_t position = rope.k_offset + row;
    const std::int64_t cos = position * rope.cos_stride, sin = position * rope.sin_stride;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int channel = at.channel + (rope.interleaved ? i * at.apart : 0);
      if (channel >= turned(rope)) continue;
      const int pair = rope.interleaved ? channel / 2 : channel + 4 * i;
      angles.cos[i] = values<kAligned>(rope, rope.cos, cos + pair);
      angles.sin[i] = values<kAligned>(rope, rope.sin, sin + pair);
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
  template <bool kAligned>
  static __device__ float4 values(const RopeArgs& rope, const void* table, std::int64_t i) {
    if constexpr (!kAligned) return table_values(table, rope, i);
    return *reinterpret_cast<const float4*>(static_cast<const float*>(table) + i);
  }
  /// Where the channels end that an embedding turns; half_split looks at lower halves only.
  static __device__ int turned(const RopeArgs& rope) {
    return rope.interleaved ? 2 * rope.half : rope.half;
  }
};

/// What counts: everything, or what is finite.
struct All {
  static __device__ float value(float x) { return x; }
};
struct Finite {
  static __device__ float value(float x) { return isfinite(x) ? x : 0.0f; }
};

template <typename Turn>
using MeanSum = float[Turn::kHeads][2][kChannels];

/// A thread's rows of one run, some of them on their way from memory. kWhole: all rows and
/// channels exist and are aligned.
template <int kD, int kBytes, typename Turn, bool kWhole>
class MeanRows {
 public:
  static constexpr int kHeads = Turn::kHeads;
  static constexpr int kAhead = kWhole && Turn::kDepth > kChannels* kBytes
                                    ? Turn::kDepth / (kChannels * kBytes)
                                    : 1;
  using Place = MeanPlace<kD, Turn>;

  __device__ MeanRows(const QuantizeArgs& args, int b, int h, int row, int end, const Place& at)
      : args_(args), at_(at), row_(row), end_(end) {
    from_ =
        static_cast<const char*>(args.k.x) +
        (b * args.k.stride_b + row * args.k.stride_s + h * args.k.stride_h + at.channel) * kBytes;
    to_next_row_ = kMeanLanes * args.k.stride_s * kBytes;
    // An odd last head is summed twice.
    to_second_head_ = h + 1 < args.k.heads ? args.k.stride_h * kBytes : 0;
  }

  /// Loads the next row; past the end +0, which changes no sum.
  __device__ void load(int slot) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const char* from = from_ + h * to_second_head_ + i * at_.apart * kBytes;
        if constexpr (kWhole) {
          unit_[slot][h][i] = load_unit<kBytes>(from, true);
        } else {
          unit_[slot][h][i] = {};
          if (row_ < end_ && at_.channel + i * at_.apart < args_.k.d) {
            unit_[slot][h][i] = load_unit<kBytes>(from, args_.k.wide_loads);
          }
        }
      }
    }
    if (kWhole || row_ < end_) Turn::template load<kWhole>(args_.rope, at_, row_, angles_[slot]);
    row_ += static_cast<int>(kMeanLanes);
    from_ += to_next_row_;
  }

  template <typename Counts>
  __device__ void add(int slot, DType dtype, MeanSum<Turn>& sum) const {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      UnitPair x;
      unpack<kBytes>(unit_[slot][h], dtype, NoFlip(), x);
      Turn::turn(args_.rope, at_, angles_[slot], x);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < kChannels; ++j) {
          sum[h][i][j] = __fadd_rn(sum[h][i][j], Counts::value(x[i][j]));
        }
      }
    }
  }

 private:
  const QuantizeArgs& args_;
  const Place& at_;
  int row_, end_;
  const char* from_;
  std::int64_t to_next_row_, to_second_head_;
  Unit<kBytes> unit_[kAhead][kHeads][2];
  typename Turn::Angles angles_[kAhead];
};

/// A thread's rows of one run, added up in order.
template <int kD, int kBytes, typename Turn, bool kWhole, typename Counts>
__device__ void sum_rows(const QuantizeArgs& args, DType dtype, int b, int h, int begin, int end,
                         const MeanPlace<kD, Turn>& at, MeanSum<Turn>& sum) {
  constexpr int kStep = static_cast<int>(kMeanLanes);
  using Rows = MeanRows<kD, kBytes, Turn, kWhole>;
  static_assert(kMeanRunKeys % (Rows::kAhead * kStep) == 0);
  int row = begin + at.row_lane;
  Rows rows(args, b, h, row, end, at);
#pragma unroll
  for (int i = 0; i < Rows::kAhead; ++i) rows.load(i);
#pragma unroll
  for (auto& head : sum) {
#pragma unroll
    for (auto& unit : head) {
#pragma unroll
      for (float& s : unit) s = 0;
    }
  }
  const auto add = [&](int i) {
    if (kWhole || row + i * kStep < end) rows.template add<Counts>(i, dtype, sum);
  };
#pragma unroll 1
  for (; row + Rows::kAhead * kStep < end; row += Rows::kAhead * kStep) {
#pragma unroll
    for (int i = 0; i < Rows::kAhead; ++i) {
      add(i);
      rows.load(i);
    }
  }
#pragma unroll
  for (int i = 0; i < Rows::kAhead; ++i) add(i);
}

template <typename Turn>
__device__ bool all_finite(const MeanSum<Turn>& sum) {
  bool finite = true;
#pragma unroll
  for (const auto& head : sum) {
#pragma unroll
    for (const auto& unit : head) {
#pragma unroll
      for (float s : unit) finite = finite && isfinite(s);
    }
  }
  return finite;
}

/// Sum of one run in this thread's channels, over its rows. A sum that is not finite is worked
/// out again without what made it so.
template <int kD, int kBytes, typename Turn>
__device__ void sum_run(const QuantizeArgs& args, int b, int h, int begin, int end,
                        const MeanPlace<kD, Turn>& at, MeanSum<Turn>& sum) {
  const DType dtype = args.k.dtype;
  const bool whole = args.k.wide_loads && Turn::aligned(args.rope) && args.k.d == kD &&
                     end - begin == static_cast<int>(kMeanRunKeys);
  if (whole && dtype == DType::bf16) {
    sum_rows<kD, kBytes, Turn, true, All>(args, DType::bf16, b, h, begin, end, at, sum);
  } else {
    sum_rows<kD, kBytes, Turn, false, All>(args, dtype, b, h, begin, end, at, sum);
  }
  if (all_finite<Turn>(sum)) return;
  sum_rows<kD, kBytes, Turn, false, Finite>(args, dtype, b, h, begin, end, at, sum);
}

/// Sums of the runs that the groups take in one round, a lane's each.
template <int kD, int kBytes, typename Turn>
__device__ void sum_runs(const QuantizeArgs& args, int b, int h, int first_run, int keys,
                         MeanShared<kD, Turn::kHeads>& shared) {
  MeanSum<Turn> sum;
  {
    const MeanPlace<kD, Turn> at(args.rope);
    const int run = first_run + kMeanCluster * at.group;
    const int begin = run * static_cast<int>(mean_run_distance(keys));
    const int end = static_cast<int>(mean_run_end(begin, keys));
    sum_run<kD, kBytes, Turn>(args, b, h, begin, end, at, sum);
  }
  const MeanPlace<kD, Turn> at(args.rope);  // anew: registers
#pragma unroll
  for (int n = 0; n < Turn::kHeads; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        shared.lanes[at.group][n][at.row_lane][at.channel + i * at.apart + j] = sum[n][i][j];
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
    // Lane j has runs j and j + 16; those that no round reached are 0.
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
  const int groups = (args.k.heads + kHeads - 1) / kHeads;
  const int group = static_cast<int>(blockIdx.x) / kMeanCluster;
  const int b = group / groups, h = group % groups * kHeads;
  const int keys = valid_keys(args.k, args.lengths, b);
  const int distance = static_cast<int>(mean_run_distance(keys));
  auto* run_sums = &shared.run_sum[0][0][0];
  for (int i = opaque_thread(); i < kHeads * kMeanRuns * kD; i += Shape::kThreads) run_sums[i] = 0;
  cluster.sync();  // before the others write to block 0
  for (int round = 0; round < kMeanRuns; round += Shape::kAtOnce) {
    if (round * distance >= keys) break;
    const int first_run = round + static_cast<int>(cluster.block_rank());
    sum_runs<kD, kBytes, Turn>(args, b, h, first_run, keys, shared);
    __syncthreads();
    for (int i = opaque_thread(); i < Shape::kGroups * kHeads * kD; i += Shape::kThreads) {
      const int c = i % kD, n = i / kD % kHeads, g = i / (kD * kHeads);
      *cluster.map_shared_rank(&shared.run_sum[n][first_run + kMeanCluster * g][c], 0) =
          lane_tree<kD>(shared.lanes[g][n], c);
    }
    __syncthreads();
  }
  cluster.sync();
  if (cluster.block_rank() == 0) finish_means<kD, kHeads>(args, b, h, keys, shared);
}

}  // namespace octavo::sm90
