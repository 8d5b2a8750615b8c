// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "core/tile_table.h"

namespace octavo {

template <typename Index>
constexpr std::pair<Index, Index> split_range(Index keys, Index num_splits, Index split) {
  const Index tiles = (keys + kBlockN - 1) / kBlockN;
  const Index each = (tiles + num_splits - 1) / num_splits;
  return {std::min<Index>(split * each, tiles), std::min<Index>((split + 1) * each, tiles)};
}

}  // namespace octavo
