// SPDX-License-Identifier: Apache-2.0
// Which key tiles a group of query rows visits, last to first. Every mask of core/mask.h is an
// interval of keys a row; a window with open ends is no mask or a causal one.
#pragma once

#include "core/mask.h"
#include "core/split.h"
#include "core/tile_table.h"
#include "sm90/attention/args.h"
#include "sm90/attention/shared.h"

namespace octavo::sm90 {

/// Key tiles [first, last).
struct TileRange {
  int first = 0, last = 0;
};

using KernelMask = BasicWindowMask<int>;

/// The mask of a batch entry with `keys` valid keys.
__device__ inline KernelMask mask_of(const AttentionArgs& args, int keys) {
  return {args.sq, keys, args.left, args.right};
}

/// Tiles of rows may begin before the first one and end past the last.
__device__ inline bool is_row(const AttentionArgs& args, int row) {
  return row >= 0 && row < args.sq;
}

/// Key tiles of kTile keys of a split of a batch entry's keys, which is cut at multiples of
/// kBlockN.
template <int kTile>
__device__ inline TileRange split_of(const AttentionArgs& args, int keys, int split) {
  static_assert(kBlockN % kTile == 0);
  const auto [first, last] = split_range(keys, args.schedule.splits(), split);
  return {first * (kBlockN / kTile), last * (kBlockN / kTile)};
}

/// Of them, those of a leg.
__device__ inline TileRange leg_of(const TileRange& tiles, const Leg& leg) {
  const int cut = tiles.last - leg.cut;
  return {leg.hands() ? cut : tiles.first, leg.takes() ? cut : tiles.last};
}

/// Key tiles of `among` that any of the rows [m, m + rows) sees.
template <int kTile>
__device__ inline TileRange tiles_of(const KernelMask& mask, int m, int rows,
                                     const TileRange& among) {
  if (m >= mask.sq || m + rows <= 0) return {};
  const int from = max(m, 0);
  const auto [first, last] = block_range(mask, from, m + rows - from, kTile);
  const TileRange tiles{max(first, among.first), min(last, among.last)};
  return tiles.first < tiles.last ? tiles : TileRange{};
}

/// How these rows go through the item's key tiles; nowhere, at its first tile, if they see none.
template <int kTile>
__device__ inline WalkNote walk_of(const KernelMask& mask, int m, int rows, const TileRange& item) {
  const TileRange mine = tiles_of<kTile>(mask, m, rows, item);
  if (mine.first >= mine.last) return {{item.first, item.first, item.first, item.first}};
  const auto [first_full, last_full] = full_block_range(mask, m, rows, kTile);
  const int upper = min(max(last_full, mine.first), mine.last);
  return {{mine.last, upper, min(max(first_full, mine.first), upper), mine.first}};
}

}  // namespace octavo::sm90
