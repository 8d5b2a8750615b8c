// SPDX-License-Identifier: Apache-2.0
// Split keys: which key tiles each of num_splits ranges holds.
//
//   T = ceil(keys / kBlockN)    n = ceil(T / num_splits)
//   split i: tiles [i n, min((i + 1) n, T)), none where i n >= T
//
// keys is the length of a batch entry, whatever its mask hides: every row cuts at the same tiles.
#pragma once

#include <algorithm>
#include <utility>

#include "core/tile_table.h"

namespace octavo {

inline constexpr int kMaxSplits = 64;

/// Key tiles [first, last) of split `split`. Kernels take it with 32-bit indices.
template <typename Index>
constexpr std::pair<Index, Index> split_range(Index keys, Index num_splits, Index split) {
  const Index tiles = (keys + kBlockN - 1) / kBlockN;
  const Index per_split = (tiles + num_splits - 1) / num_splits;
  return {std::min<Index>(split * per_split, tiles),
          std::min<Index>((split + 1) * per_split, tiles)};
}

}  // namespace octavo
