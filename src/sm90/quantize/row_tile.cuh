// SPDX-License-Identifier: Apache-2.0
// Who owns what: a thread block of 16 kLanes threads holds 128 rows of one (batch, head) in FP32
// registers. Thread (row_lane, lane) owns channels [8 lane, 8 lane + 8) of 8 rows.
//
//   rows of Q and K:  i * 16 + row_lane, i = 0..7         (coalesced loads and stores of whole
//   rows) rows of V:        the keys at positions 4 u + {0..3} of the kernels' key order, u =
//   row_lane and
//                     row_lane + 16: four codes that are neighbours in V^T (core/kv_order.h)
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

/// The rows of a tile that a thread owns: a first one of its own and fixed distances from it, so
/// that addresses cost no registers.
struct RowOrder {  // of Q and K
  int base;
  static __device__ constexpr int delta(int i) { return i * kRowLanes; }
};

struct KeyOrder {  // of V
  int base;
  static __device__ constexpr int delta(int i) {
    return static_cast<int>(key_at_position(4 * kRowLanes * (i / 4) + i % 4));
  }
};

template <int kD>
struct Place {
  int row_lane = static_cast<int>(threadIdx.x) / TileShape<kD>::kLanes;
  int lane = static_cast<int>(threadIdx.x) % TileShape<kD>::kLanes;
  int channel = lane * kChannels;
  bool active = channel < kD;

  __device__ RowOrder rows() const { return {row_lane}; }
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
