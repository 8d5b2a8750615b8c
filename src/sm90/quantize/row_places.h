// SPDX-License-Identifier: Apache-2.0
// Who has which channels of which rows of a tile of Q or K. A warp has groups of eight rows; of a
// Hadamard block of n channels a thread has two runs of n / 8 neighbours:
//
//   as they arrive        four threads a row. Thread t = lane % 4 of row lane / 4 has the t-th
//                         quarter of either half of a block: operand B of mma.m16n8k16
//   as they are rotated   eight threads a row. Thread g = lane / 4 has the g-th eighth of a block
//                         in rows 2 t and 2 t + 1: what the tensor core leaves
//
// Runs are told apart by `side`: the half of a block, then the row of a pair.
#pragma once

#include <algorithm>

#include "core/hadamard.h"
#include "sm90/quantize/args.h"

namespace octavo::sm90 {

inline constexpr int kChannels = 8;  // of a unit: 16 bytes of a 16-bit type
inline constexpr int kUnitBytes = 16;
inline constexpr int kGroupRows = 8;  // that tensor cores rotate at a time

/// 32 values a thread up to d 128: few enough registers for 32 warps a multiprocessor.
template <int kD>
struct TileShape {
  static constexpr int kBlock = hadamard_size(kD), kBlocks = kD / kBlock;
  static constexpr int kRun = kBlock / 8;
  static constexpr int kGroups = kD <= 64 ? 2 : 1;  // of a warp
  static constexpr int kWarpRows = kGroups * kGroupRows;
  static constexpr int kWarps = kTileRows / kWarpRows;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kMinBlocks = kD <= 64 ? 4 : (kD <= 128 ? 2 : 1);  // 64 or 128 registers
};

/// Where a row's 16-bit elements lie in shared memory. Units of neighbouring rows are exchanged so
/// that threads which read at the same time, of two rows or four, meet in no bank.
template <int kD>
struct RowSlots {
  static constexpr int kUnits = kD / kChannels, kBytes = kUnits * kUnitBytes;
  // Bits of an address that an exclusive or may change: below them rows start.
  static constexpr int kMask = (kBytes & -kBytes) < 128 ? (kBytes & -kBytes) - 1 : 127;

  /// To be exchanged in offsets of `row`; rows that share no bit may be added.
  static constexpr int swizzle(int row) {
    if (kD == 96) return (row >> 1 & 1) * 2 * kUnitBytes;
    if (TileShape<kD>::kRun == 8) return ((row & 1) << 2 | (row >> 1 & 3)) * kUnitBytes;
    return (row & 7) * kUnitBytes;
  }
  static constexpr int offset(int row, int channel) {
    return row * kBytes + ((channel * 2) ^ swizzle(row));
  }
};

/// A thread's units of its rows, `kPiece` neighbouring channels each, run after run.
template <int kD>
class ArrivalPlace {
  using Shape = TileShape<kD>;
  using Slots = RowSlots<kD>;

 public:
  static constexpr int kRows = Shape::kGroups;  // of a thread
  static constexpr int kNear = 1, kFar = 2;     // distances between the lanes of a row
  static constexpr int kPiece = std::min(Shape::kRun, kChannels);
  static constexpr int kPieces = Shape::kRun / kPiece;  // of a run
  static constexpr int kUnits = Shape::kGroups * 2 * Shape::kBlocks * kPieces;
  static constexpr bool kCovers = true;  // every unit of every thread is in the tile

  constexpr explicit ArrivalPlace(int thread)
      : lane_(thread % 4), first_(thread / 32 * Shape::kWarpRows + thread % 32 / 4) {}

  constexpr bool leads() const { return lane_ == 0; }
  constexpr int first_row() const { return first_; }
  constexpr int row_at(int i) const { return first_ + i * kGroupRows; }
  constexpr int first_channel() const { return lane_ * Shape::kRun; }
  /// Of a run, from the first one.
  static constexpr int channel_step(int side, int block) {
    return block * Shape::kBlock + side * (Shape::kBlock / 2);
  }

  /// Row and channel of unit i.
  constexpr int row(int i) const { return row_at(group_of(i)); }
  constexpr int channel(int i) const { return first_channel() + unit_step(i); }
  /// Offset of unit i among the tile's slots.
  constexpr int slot(int i) const {
    const int step = unit_step(i) * 2;
    return (Slots::offset(first_, first_channel()) ^ (step & Slots::kMask)) +
           (step & ~Slots::kMask) + group_of(i) * kGroupRows * Slots::kBytes;
  }

 private:
  static constexpr int kGroupUnits = kUnits / Shape::kGroups;
  static constexpr int group_of(int i) { return i / kGroupUnits; }
  static constexpr int unit_step(int i) {
    const int run = i % kGroupUnits / kPieces;
    return channel_step(run / Shape::kBlocks, run % Shape::kBlocks) + i % kPieces * kPiece;
  }

  int lane_, first_;
};

template <int kD>
class RotatedPlace {
  using Shape = TileShape<kD>;

 public:
  static constexpr int kRows = 2 * Shape::kGroups;
  static constexpr int kNear = 4, kFar = 16;

  constexpr explicit RotatedPlace(int thread)
      : lane_(thread % 32 / 4), first_(thread / 32 * Shape::kWarpRows + thread % 4 * 2) {}

  constexpr bool leads() const { return lane_ == 0; }
  constexpr int first_row() const { return first_; }
  constexpr int row_at(int i) const { return first_ + i / 2 * kGroupRows + i % 2; }
  constexpr int first_channel() const { return lane_ * Shape::kRun; }
  static constexpr int channel_step(int, int block) { return block * Shape::kBlock; }

 private:
  int lane_, first_;
};

/// Which units a thread copies into the slots: a warp takes its rows one after another, since
/// memory likes long lines.
template <int kD>
class RowCopy {
  using Slots = RowSlots<kD>;
  static constexpr int kPower = Slots::kUnits & -Slots::kUnits;
  static constexpr int kLanes = std::min(kPower, 32);  // side by side in a row
  static constexpr int kAcross = Slots::kUnits / kLanes;
  static constexpr int kRowsApart = 32 / kLanes;

 public:
  static constexpr bool kOwn = false;  // threads copy for one another
  static constexpr int kUnits = TileShape<kD>::kWarpRows / kRowsApart * kAcross;

  constexpr explicit RowCopy(int thread) : thread_(thread) {}
  constexpr int first_row() const {
    return thread_ / 32 * TileShape<kD>::kWarpRows + thread_ % 32 / kLanes;
  }
  constexpr int first_channel() const { return thread_ % kLanes * kChannels; }
  static constexpr int row_step(int i) { return i / kAcross * kRowsApart; }
  static constexpr int channel_step(int i) { return i % kAcross * kLanes * kChannels; }
  constexpr int first_slot() const { return Slots::offset(first_row(), first_channel()); }
  static constexpr int slot_flip(int i) { return Slots::swizzle(row_step(i)); }
  static constexpr int slot_step(int i) {
    return row_step(i) * Slots::kBytes + channel_step(i) * 2;
  }

 private:
  int thread_;
};

}  // namespace octavo::sm90
