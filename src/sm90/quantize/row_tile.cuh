// SPDX-License-Identifier: Apache-2.0
// Who owns what of a tile of 128 rows of one (batch, head), in units of eight channels:
//
//   Q, K   four threads a row (ArrivalPlace; after the rotation RowPlace)
//   V      a thread has a unit of the four keys at positions 4 u + {0..3} of the kernels' key order
//          (core/kv_order.h): codes that are neighbours in V^T (KeyPatch)
//
// 32 values a thread up to d 128: few enough registers for 32 warps a multiprocessor.
#pragma once

#include "core/kv_order.h"
#include "sm90/ptx/opaque.cuh"
#include "sm90/quantize/args.h"

namespace octavo::sm90 {

inline constexpr int kChannels = 8;  // of a unit: 16 bytes of a 16-bit type
inline constexpr int kUnitBytes = 16;
inline constexpr int kThreadsPerRow = 4;
inline constexpr int kRowsAtOnce = 32 / kThreadsPerRow;  // rows of a warp, one a thread

/// This thread's number, for the compiler a new one each time: what follows from it is worked out
/// again where it is needed instead of being kept across tiles. Its bounds make divisions shifts.
__device__ inline int opaque_thread() {
  const int thread = ptx::opaque(static_cast<int>(threadIdx.x));
  __builtin_assume(thread >= 0 && thread < 1024);
  return thread;
}

template <int kD>
struct TileShape {
  static constexpr int kRows = kD <= 64 ? 2 : 1;                       // of Q or K a thread has
  static constexpr int kRowUnits = kD / (kChannels * kThreadsPerRow);  // of each of them
  static constexpr int kThreads = kTileRows * kThreadsPerRow / kRows;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kMinBlocks = kD <= 64 ? 4 : (kD <= 128 ? 2 : 1);  // 64 or 128 registers
};

/// Where a row's 16-bit units lie in shared memory. Odd rows have theirs exchanged, so that threads
/// which read a unit of two neighbouring rows meet in no bank, in either place of theirs.
template <int kD>
struct RowSlots {
  static constexpr int kUnits = kD / kChannels, kBytes = kUnits * kUnitBytes;

  static __device__ constexpr int swizzle(int row) {
    return kBytes % 128 == 0 ? row % 2 * 5 * kUnitBytes : 0;
  }
  static __device__ constexpr int offset(int row, int unit) {
    return row * kBytes + ((unit * kUnitBytes) ^ swizzle(row));
  }
};

/// Whether the threads of a row exchange units while they rotate it: where the head dim is a power
/// of two (rotate.cuh).
template <int kD>
inline constexpr bool kExchanges = (kD & (kD - 1)) == 0;

/// Which rows of Q or K a thread has, and of each units l, l + 4, ..
template <int kD>
struct RowPlace {
  using Shape = TileShape<kD>;
  int thread;
  int l, first;  // place in the row; the first of this thread's rows in the tile

  __device__ explicit RowPlace(int thread_)
      : thread(thread_),
        l(thread % kThreadsPerRow),
        first(thread / 32 * kWarpRows + thread % 32 / kThreadsPerRow) {}

  __device__ int row(int i) const { return first + i * kRowsAtOnce; }
  __device__ int first_channel() const { return l * kChannels; }
  /// Unit k's distance from the first one.
  static __device__ constexpr int channel_step(int k) { return k * kThreadsPerRow * kChannels; }

  static constexpr int kWarpRows = kRowsAtOnce * Shape::kRows;
};

/// As RowPlace, of a row that is yet to be rotated: neighbours 2 l, 2 l + 1 and every eighth on
/// where the threads of a row will exchange half of them.
template <int kD>
struct ArrivalPlace {
  using Shape = TileShape<kD>;
  using Slots = RowSlots<kD>;
  static constexpr int kUnits = Shape::kRows * Shape::kRowUnits;
  static constexpr bool kCovers = true;  // every unit of every thread is in the tile
  int l, first;
  bool pairs;  // whether its units are neighbours in pairs

  __device__ ArrivalPlace(const RowPlace<kD>& at, bool rotates)
      : l(at.l), first(at.first), pairs(kExchanges<kD> && rotates) {}

  /// Channel of the first and second unit; the others are 64 channels on.
  __device__ int near() const { return l * kChannels * (pairs ? 2 : 1); }
  __device__ int far() const { return near() + kChannels * (pairs ? 1 : kThreadsPerRow); }

  /// Channel and row of unit i.
  __device__ int channel(int i) const {
    const int k = i % Shape::kRowUnits;
    return (k % 2 == 0 ? near() : far()) + channel_step(k);
  }
  __device__ int row(int i) const { return first + row_step(i); }
  static __device__ constexpr int channel_step(int k) {
    return k / 2 * 2 * kThreadsPerRow * kChannels;
  }

  /// Offset of unit i among the tile's slots.
  __device__ int slot(int i) const {
    const int k = i % Shape::kRowUnits;
    return Slots::offset(first, (k % 2 == 0 ? near() : far()) / kChannels) +
           row_step(i) * Slots::kBytes + channel_step(k) / kChannels * kUnitBytes;
  }

  /// Which units a thread copies: a warp takes its rows one after another, since memory likes long
  /// lines.
  struct Copy {
    static constexpr bool kOwn = false;
    static constexpr int kPower = Slots::kUnits & -Slots::kUnits;
    static constexpr int kLanes = kPower < 32 ? kPower : 32;  // side by side in a row
    static constexpr int kAcross = Slots::kUnits / kLanes;
    static constexpr int kRowsApart = 32 / kLanes;
    int thread;

    __device__ explicit Copy(int thread_) : thread(thread_) {}
    __device__ int first_row() const {
      return thread / 32 * RowPlace<kD>::kWarpRows + thread % 32 / kLanes;
    }
    __device__ int first_channel() const { return thread % kLanes * kChannels; }
    static __device__ constexpr int row_step(int i) { return i / kAcross * kRowsApart; }
    static __device__ constexpr int channel_step(int i) { return i % kAcross * kLanes * kChannels; }
    __device__ int first_slot() const {
      return Slots::offset(first_row(), first_channel() / kChannels);
    }
    static __device__ constexpr int slot_flip(int i) { return Slots::swizzle(row_step(i)); }
    static __device__ constexpr int slot_step(int i) {
      return row_step(i) * Slots::kBytes + channel_step(i) / kChannels * kUnitBytes;
    }
  };

 private:
  static __device__ constexpr int row_step(int i) { return i / Shape::kRowUnits * kRowsAtOnce; }
};

inline constexpr int kPatchKeys = 4;

template <int kD>
struct KeyCopy;

/// Patches of V. A warp takes kAcross units of 32 / kAcross patches of keys: whole words of
/// neighbouring banks in V^T.
template <int kD>
struct KeyPatches {
  using Shape = TileShape<kD>;
  static constexpr int kRowUnits = kD / kChannels;
  static constexpr int kAcross = kRowUnits % 8 == 0 ? 8 : 4;
  static constexpr int kDown = kTileRows / kPatchKeys;
  static constexpr int kCount = (kDown * kRowUnits + Shape::kThreads - 1) / Shape::kThreads;
  static constexpr int kUnits = kCount * kPatchKeys;
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

  using Copy = KeyCopy<kD>;
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
