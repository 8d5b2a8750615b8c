// SPDX-License-Identifier: Apache-2.0
// Shared memory of one forward kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tile_table.h"
#include "sm90/tile/fragment.h"
#include "sm90/tile/scheduler.h"

namespace octavo::sm90 {

inline constexpr int kOnesRows = 8;    // beside V^T: the product's row sums of P
inline constexpr int kNoteStages = 2;  // of what the producer says of an item

/// What the producer says of a query row.
struct RowNote {
  float q_descale;  // 0 before the first row and beyond the last
  float shift;      // q . mean(K)
};

/// What it says of a work item: where it is, valid keys of its batch entry, key tiles
/// [first, last) of its split, or of its leg of that, that any of its rows sees, in whichever
/// thread block of a cluster.
struct alignas(16) ItemNote {
  int m, head, batch, split;  // m: this block's first query row; kNoItem ends the work
  int keys;
  int first, last;
  int baton;  // as in Leg
};

/// Key tiles that a warpgroup visits, from the last down: [end[i + 1], end[i]) for i = 0, 1, 2, of
/// which those of i = 1 are seen whole by every row and need no mask.
struct alignas(16) WalkNote {
  int end[4];
};

/// What the producer says of a key tile. O is kept in units of descale_v: the tile's own, unless
/// that is 2^80 times smaller than one before, as of an all-zero tile, which would overflow O.
struct alignas(16) TileNote {
  float k_descale;  // 1 where K has one a key
  float keep;       // unit of the tile before / unit of this one
  float add;        // descale_v / unit: 1, or next to nothing
  float unit;
};

template <typename Traits>
struct alignas(1024) Shared {
  static_assert(kNoteStages >= 2 && kNoteStages >= Traits::kQStages);
  // The 128-byte swizzle repeats every 1024 bytes: each array below is a multiple of that.
  std::uint8_t q[Traits::kQStages][Traits::kConsumers][Traits::kPieces][kWarpgroupRows * 128];
  // V in 8 bits: rows of V^T, and of ones; in 16 bits: pieces of rows of V, as of K.
  static constexpr int kVTile = Traits::k16Bit ? Traits::kVPieces * Traits::kBlockN * 128
                                               : (Traits::kHeadDimV + kOnesRows) * Traits::kBlockN;
  std::uint8_t k[Traits::kStages][Traits::kPieces][Traits::kBlockN * 128];
  std::uint8_t v[Traits::kStages][kVTile];
  std::uint8_t out[Traits::kConsumers][Traits::kOutBuffers][kWarpgroupRows * 128];

  TileNote tile[Traits::kStages];
  float k_descale[Traits::kStages][Traits::kDescales];  // one a key, where it is so
  float v_descale[Traits::kStages][Traits::kDescales];
  ItemNote item[kNoteStages];
  WalkNote walk[kNoteStages][Traits::kConsumers];
  RowNote rows[kNoteStages][Traits::kConsumers][kWarpgroupRows];

  std::uint64_t q_full[Traits::kQStages], q_empty[Traits::kQStages];
  std::uint64_t k_full[Traits::kStages], k_empty[Traits::kStages];
  std::uint64_t v_full[Traits::kStages], v_empty[Traits::kStages];  // Traits::kApart
  std::uint64_t v_landed;  // a tile of V in 16 bits of which the producer clears rows

  static constexpr std::uint32_t kQBytes = sizeof(q) / Traits::kQStages;
  static constexpr std::uint32_t kKBytes = sizeof(k) / Traits::kStages;
  static constexpr std::uint32_t kVBytes =
      Traits::k16Bit ? kVTile : Traits::kHeadDimV * Traits::kBlockN;
};

inline constexpr std::size_t kSharedMemoryLimit = 227 * 1024;  // a thread block's, Hopper

}  // namespace octavo::sm90
