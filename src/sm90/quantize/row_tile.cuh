// SPDX-License-Identifier: Apache-2.0
// One tile, 128 rows of one (batch, head), and who has what of V's: a thread has a unit of the four
// keys at positions 4 u + {0..3} of the kernels' key order (core/kv_order.h), codes that are
// neighbours in V^T. Q's and K's rows: row_places.h.
#pragma once

#include "core/kv_order.h"
#include "sm90/ptx/opaque.cuh"
#include "sm90/quantize/row_places.h"

namespace octavo::sm90 {

/// This thread's number, for the compiler a new one each time: what follows from it is worked out
/// again where it is needed instead of being kept across tiles. Its bounds make divisions shifts.
__device__ inline int opaque_thread() {
  const int thread = ptx::opaque(static_cast<int>(threadIdx.x));
  __builtin_assume(thread >= 0 && thread < 1024);
  return thread;
}

inline constexpr int kPatchKeys = 4;

/// Patches of V. A warp takes kAcross units of 32 / kAcross patches of keys: whole words of
/// neighbouring banks in V^T.
template <int kD>
struct KeyPatches {
  using Shape = TileShape<kD>;
  static constexpr int kRowUnits = kD / kChannels;
  static constexpr int kAcross = kRowUnits % 8 == 0 ? 8 : 4;
  static constexpr int kDown = kTileRows / kPatchKeys;
  static constexpr int kCount = (kDown * kRowUnits + Shape::kThreads - 1) / Shape::kThreads;
  static constexpr int kUnits = kCount * kPatchKeys, kPiece = kChannels;
  static constexpr bool kCovers = kDown * kRowUnits % Shape::kThreads == 0;
  static_assert(kCount == 1 || Shape::kThreads % (kAcross * kDown) == 0);
  int thread;
  int u;      // word of V^T: keys 4 u + {0..3} in key order
  int first;  // channel of the first patch

  __device__ explicit KeyPatches(int thread_ = static_cast<int>(threadIdx.x))
      : thread(thread_),
        u(thread / kAcross % kDown),
        first((thread / (kAcross * kDown) * kAcross + thread % kAcross) * kChannels) {}

  /// First channel of patch p.
  __device__ int patch(int p) const { return first + p * (Shape::kThreads / kDown * kChannels); }
  __device__ bool active(int p) const { return kCovers || patch(p) < kD; }
  /// Channel and row of unit i.
  __device__ int channel(int i) const { return patch(i / kPatchKeys); }
  __device__ int row(int i) const { return first_row() + row_step(i); }
  /// Offset of unit i among the tile's slots.
  __device__ int slot(int i) const { return first_slot() + slot_step(i); }

  __device__ int first_row() const { return static_cast<int>(key_at_position(kPatchKeys * u)); }
  __device__ int first_channel() const { return first; }
  static __device__ constexpr int row_step(int i) {
    return static_cast<int>(key_at_position(i % kPatchKeys));
  }
  static __device__ constexpr int channel_step(int i) {
    return i / kPatchKeys * (Shape::kThreads / kDown * kChannels);
  }

  __device__ int first_slot() const { return thread * kUnitBytes; }
  static __device__ constexpr int slot_flip(int) { return 0; }
  static __device__ constexpr int slot_step(int i) { return i * Shape::kThreads * kUnitBytes; }
};

/// Each thread copies its own units.
template <int kD>
struct KeyCopy : KeyPatches<kD> {
  static constexpr bool kOwn = true;
  __device__ explicit KeyCopy(int thread) : KeyPatches<kD>(thread) {}
};

static_assert(
    [] {
      for (int position = 0; position < kTileRows; ++position) {
        const int first = position / kPatchKeys * kPatchKeys;
        if (key_at_position(position) !=
            key_at_position(first) + key_at_position(position % kPatchKeys)) {
          return false;
        }
      }
      return true;
    }(),
    "a patch's keys must be at fixed distances");

/// One tile: 128 rows of one (batch, head).
struct RowBlock {
  int b, h, first;
  int valid;  // rows of the tile that count: none where <= 0, all from 128 on
  int head;   // b * heads + h

  __device__ RowBlock next_head() const { return {b, h + 1, first, valid, head + 1}; }
};

__device__ inline int valid_keys(const OperandArgs& operand, const KeyLengths& lengths, int b) {
  if (lengths.device != nullptr) return min(max(lengths.device[b], 0), operand.rows);
  return lengths.use_value ? lengths.value[b] : operand.rows;
}

/// The first tile of thread block `block` of an operand, all its rows valid.
__device__ inline RowBlock row_block(const OperandArgs& operand, int block) {
  RowBlock rows;
  const int rest = operand.by_runs.quotient(block);
  rows.h = operand.by_runs.remainder(block, rest) * operand.run;
  rows.b = operand.by_row_tiles.quotient(rest);
  rows.first = operand.by_row_tiles.remainder(rest, rows.b) * kTileRows;
  rows.valid = operand.rows - rows.first;
  rows.head = rows.b * operand.heads + rows.h;
  return rows;
}

/// As row_block, for K and V.
__device__ inline RowBlock key_block(const OperandArgs& operand, const KeyLengths& lengths,
                                     int block) {
  RowBlock rows = row_block(operand, block);
  rows.valid = valid_keys(operand, lengths, rows.b) - rows.first;
  return rows;
}

}  // namespace octavo::sm90
