// SPDX-License-Identifier: Apache-2.0
// Who owns what: a thread block of 16 kLanes threads holds 128 rows of one (batch, head) in FP32
// registers, each thread channels [8 lane, 8 lane + 8) of 8 rows. Which 8, an order says:
//
//   WarpOrder   Q and K: a warp has neighbouring rows, so that it loads and rotates them by itself
//   MeanOrder   K's mean: rows i * 16 + row_lane, the lanes of core/key_mean.h
//   KeyOrder    V: the keys at positions 4 u + {0..3} of the kernels' key order (core/kv_order.h),
//               u = row_lane and row_lane + 16: codes that are neighbours in V^T
#pragma once

#include "core/kv_order.h"
#include "sm90/quantize/args.h"

namespace octavo::sm90 {

inline constexpr int kRowLanes = 16;
inline constexpr int kRowsPerThread = kTileRows / kRowLanes;
inline constexpr int kChannels = 8;  // of a thread: 16 bytes of a 16-bit type

static_assert(kRowLanes == kMeanLanes, "the mean's lanes are the tile's");

template <int kD>
struct TileShape {
  static constexpr int kLanes = kD <= 64 ? 8 : (kD <= 128 ? 16 : 32);  // lanes past kD / 8 idle
  static constexpr int kThreads = kRowLanes * kLanes;
  static constexpr int kMinBlocks = kThreads <= 128 ? 4 : (kThreads <= 256 ? 2 : 1);
};

// An order is a first row of the thread's own and fixed distances from it, so that addresses cost
// no registers.
template <int kD>
struct WarpOrder {
  static constexpr int kStep = 32 / TileShape<kD>::kLanes;  // rows a warp holds at one index
  static constexpr int kWarpRows = kRowsPerThread * kStep;
  int base;
  static __device__ constexpr int delta(int i) { return i * kStep; }
};

struct MeanOrder {
  int base;
  static __device__ constexpr int delta(int i) { return i * kRowLanes; }
};

struct KeyOrder {
  int base;
  static __device__ constexpr int delta(int i) {
    return static_cast<int>(key_at_position(4 * kRowLanes * (i / 4) + i % 4));
  }
};

template <int kD>
struct Place {
  int thread, row_lane, lane, warp, channel;
  bool active;

  __device__ explicit Place(int thread_ = static_cast<int>(threadIdx.x))
      : thread(thread_),
        row_lane(thread_ / TileShape<kD>::kLanes),
        lane(thread_ % TileShape<kD>::kLanes),
        warp(thread_ / 32),
        channel(lane * kChannels),
        active(channel < kD) {}

  __device__ WarpOrder<kD> rows() const {
    using Order = WarpOrder<kD>;
    return {warp * Order::kWarpRows + thread % 32 / TileShape<kD>::kLanes};
  }
  __device__ MeanOrder mean_rows() const { return {row_lane}; }
  __device__ KeyOrder keys() const { return {static_cast<int>(key_at_position(4 * row_lane))}; }
};

// Positions 4 u and up, u < 8, lie in one group of 32: distances do not depend on the thread.
static_assert(
    [] {
      for (int u = 0; u < kRowLanes; ++u) {
        for (int i = 0; i < kRowsPerThread; ++i) {
          const auto key = key_at_position(4 * (u + kRowLanes * (i / 4)) + i % 4);
          if (key != key_at_position(4 * u) + KeyOrder::delta(i)) return false;
        }
      }
      return true;
    }(),
    "a thread's keys must be at fixed distances");

struct Tile {
  float x[kRowsPerThread][kChannels];
};

/// Valid rows of a batch entry.
__device__ inline int valid_rows(const OperandArgs& operand, const KeyLengths& lengths, int b,
                                 bool is_query) {
  if (is_query) return operand.rows;
  if (lengths.device != nullptr) return min(max(lengths.device[b], 0), operand.rows);
  return lengths.use_value ? lengths.value[b] : operand.rows;
}

}  // namespace octavo::sm90
