// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`, first half: K's mean of each (batch, kv head), of the keys and in the order of
// core/key_mean.h, and its rotation. Elements that are not finite count as 0. A thread block has
// one head; a thread has all keys of one run, under way at once, and of each the same two units.
//
// Few registers, so that blocks of the launch behind, which starts with V and needs no mean, find
// room beside it.
#pragma once

#include "sm90/ptx/grid_dependency.cuh"
#include "sm90/quantize/rope.cuh"

namespace octavo::sm90 {

/// A thread has two units of a row: both channels of each pair of an embedding.
template <int kD>
struct MeanShape {
  static constexpr int kRowThreads = kD / (2 * kChannels);
  static constexpr int kThreads = static_cast<int>(kMeanRuns) * kRowThreads;
  static_assert(kThreads % 32 == 0 && kThreads >= kD);
};

template <int kD>
struct MeanShared {
  alignas(16) float run_sum[kMeanRuns][kD];
  float mean[kD];
};

/// Which run a thread has, and which of its channels.
template <int kD>
struct MeanPlace {
  int run;
  int channel;  // of the first unit
  int apart;    // channels to the second one

  __device__ explicit MeanPlace(const RopeArgs& rope) {
    constexpr int kRowThreads = MeanShape<kD>::kRowThreads;
    const int thread = static_cast<int>(threadIdx.x), own = thread % kRowThreads;
    run = thread / kRowThreads;
    const int pairs =
        rope.cos != nullptr && !rope.interleaved ? rope.half / kChannels : kRowThreads;
    // Units `pairs` apart belong together as far as there are; behind them neighbours do.
    channel = (own < pairs ? own : 2 * own) * kChannels;
    apart = (own < pairs ? pairs : 1) * kChannels;
  }
};

/// Both units of one row, as they lie in memory and in FP32.
template <int kBytes>
using MeanUnits = Unit<kBytes>[2];
using UnitPair = float[2][kChannels];

struct MeanNoRope {
  template <typename Place>
  static __device__ void turn(const RopeArgs&, const Place&, int, UnitPair&) {}
};

struct MeanWithRope {
  /// Turns key `row`.
  template <typename Place>
  static __device__ void turn(const RopeArgs& rope, const Place& at, int row, UnitPair& x) {
    const std::int64_t position = rope.k_offset + row;
    const std::int64_t cos = position * rope.cos_stride, sin = position * rope.sin_stride;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // half_split: eight pairs of both units; interleaved: four of each.
      const int pair = rope.interleaved ? (at.channel + i * at.apart) / 2 : at.channel + 4 * i;
      if (pair >= rope.half) continue;
      const float4 c = table_values(rope.cos, rope, cos + pair);
      const float4 s = table_values(rope.sin, rope, sin + pair);
      const float cs[4] = {c.x, c.y, c.z, c.w}, sn[4] = {s.x, s.y, s.z, s.w};
      if (rope.interleaved) {
        turn_neighbours(x[i], cs, sn);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) turn_pair(x[0][4 * i + j], x[1][4 * i + j], cs[j], sn[j]);
      }
    }
  }
};

/// Units of key `row`; zeros beyond the last key and channel.
template <int kBytes, typename Place>
__device__ void load_key(const OperandArgs& k, int b, int h, int row, int keys, const Place& at,
                         MeanUnits<kBytes>& units) {
  const char* from = static_cast<const char*>(k.x) +
                     (b * k.stride_b + row * k.stride_s + h * k.stride_h + at.channel) * kBytes;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    units[i] = {};
    if (row >= keys || at.channel + i * at.apart >= k.d) continue;
    units[i] = load_unit<kBytes>(from + i * at.apart * kBytes, k.wide_loads);
  }
}

/// Sums keys i, i + kStep, .. of the run that starts at key `first`, as the pairwise additions of
/// core/key_mean.h give them; kStep 1 is all of them.
template <int kBytes, typename Turn, int kStep = 1, typename Place>
__device__ void sum_keys(const QuantizeArgs& args, const Place& at, int first, int keys,
                         const MeanUnits<kBytes> (&units)[kMeanRunKeys], UnitPair& sum, int i = 0) {
  if constexpr (kStep == kMeanRunKeys) {
    unpack(units[i], args.k.dtype, sum);
    if (first + i < keys) Turn::turn(args.rope, at, first + i, sum);
#pragma unroll
    for (auto& unit : sum) {
#pragma unroll
      for (float& x : unit) x = isfinite(x) ? x : 0.0f;
    }
  } else {
    UnitPair other;
    sum_keys<kBytes, Turn, 2 * kStep>(args, at, first, keys, units, sum, i);
    sum_keys<kBytes, Turn, 2 * kStep>(args, at, first, keys, units, other, i + kStep);
#pragma unroll
    for (int j = 0; j < 2 * kChannels; ++j) {
      float& x = sum[j / kChannels][j % kChannels];
      x = __fadd_rn(x, other[j / kChannels][j % kChannels]);
    }
  }
}

/// A run's sum; a sum of zeros is +0.
template <typename Place>
__device__ void store_run(const Place& at, const UnitPair& sum, float* out) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < kChannels; j += 4) {
      *reinterpret_cast<float4*>(out + at.channel + i * at.apart + j) = {
          __fadd_rn(0.0f, sum[i][j]), __fadd_rn(0.0f, sum[i][j + 1]),
          __fadd_rn(0.0f, sum[i][j + 2]), __fadd_rn(0.0f, sum[i][j + 3])};
    }
  }
}

/// Sum over all runs of one channel.
template <int kD>
__device__ float sum_of_runs(const float (&runs)[kMeanRuns][kD], int channel) {
  constexpr int kLanes = static_cast<int>(kMeanLanes);
  float lane[kLanes];
#pragma unroll
  for (int i = 0; i < static_cast<int>(kMeanRuns); ++i) {
    float& sum = lane[i % kLanes];
    sum = i < kLanes ? runs[i][channel] : __fadd_rn(sum, runs[i][channel]);
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < distance; ++i) lane[i] = __fadd_rn(lane[i], lane[i + distance]);
  }
  return lane[0];
}

/// Rotates a row in place; one warp calls. Where a group of rows has its eight rows in the columns
/// of a product, one row has its pairs of neighbours there.
template <int kD>
__device__ void rotate_by_warp(const SignBits& signs, float (&row)[kD]) {
  using Shape = TileShape<kD>;
  constexpr int kPairs = Shape::kRun / 2, kColumns = Shape::kBlocks * kPairs;
  constexpr int kProducts = (kColumns + 7) / 8;
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  const HadamardSigns<DType::bf16> hadamard(lane);
  // First channel of the pair of a column, in the n-th eighth of its block.
  const auto channel = [](int column, int n) {
    return column / kPairs * Shape::kBlock + n * Shape::kRun + column % kPairs * 2;
  };
  const auto parts = [&](int column, int n) {
    const int c = channel(column, n);
    const std::uint32_t low = signs.negative(c) ? 0x8000u : 0;
    const std::uint32_t high = signs.negative(c + 1) ? 0x80000000u : 0;
    return Parts(row[c], row[c + 1], low | high);
  };
  float sum[kProducts][4];
#pragma unroll
  for (int p = 0; p < kProducts; ++p) {
    const int column = min(8 * p + g, kColumns - 1);
    multiply_parts(hadamard, parts(column, t), parts(column, t + 4), sum[p]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4 * kProducts; ++i) {
    const int column = i / 4 * 8 + 2 * t + i % 2;
    if (column < kColumns) row[channel(column, g) + i / 2 % 2] = sum[i / 4][i % 4];
  }
  __syncwarp();
  if (lane >= 8 * Shape::kBlocks) return;
  float(&run)[Shape::kRun] = reinterpret_cast<float(&)[Shape::kRun]>(row[lane * Shape::kRun]);
  float x[Shape::kRun];
#pragma unroll
  for (int c = 0; c < Shape::kRun; ++c) x[c] = run[c];
  add_between_registers(x);
#pragma unroll
  for (int c = 0; c < Shape::kRun; ++c) run[c] = x[c];
}

/// The mean of head `head` (counted over all batch entries) from the sums of its runs.
template <int kD>
__device__ void finish_mean(const QuantizeArgs& args, int head, int keys, MeanShared<kD>& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kD) {
    const float sum = sum_of_runs<kD>(shared.run_sum, thread);
    shared.mean[thread] = keys == 0 ? 0.0f : __fdiv_rn(sum, static_cast<float>(mean_keys(keys)));
  }
  __syncthreads();
  if (thread >= 32) return;
  if (args.rotate) rotate_by_warp<kD>(args.signs, shared.mean);
  __syncwarp();
  float* out = args.mean + std::int64_t{head} * kD;
#pragma unroll
  for (int c = thread; c < kD; c += 32) out[c] = shared.mean[c];
}

template <int kD, int kBytes, typename Turn>
__global__ void __launch_bounds__(MeanShape<kD>::kThreads, 512 / MeanShape<kD>::kThreads)
    key_mean_kernel(const __grid_constant__ QuantizeArgs args) {
  __shared__ MeanShared<kD> shared;
  ptx::launch_dependents();
  const int head = static_cast<int>(blockIdx.x), b = head / args.k.heads, h = head % args.k.heads;
  const int keys = valid_keys(args.k, args.lengths, b);
  const MeanPlace<kD> at(args.rope);
  const int first = at.run * static_cast<int>(mean_run_distance(keys));
  MeanUnits<kBytes> units[kMeanRunKeys];
#pragma unroll
  for (int i = 0; i < static_cast<int>(kMeanRunKeys); ++i) {
    load_key<kBytes>(args.k, b, h, first + i, keys, at, units[i]);
  }
  UnitPair sum;
  sum_keys<kBytes, Turn>(args, at, first, keys, units, sum);
  store_run(at, sum, shared.run_sum[at.run]);
  __syncthreads();
  finish_mean<kD>(args, head, keys, shared);
}

}  // namespace octavo::sm90
