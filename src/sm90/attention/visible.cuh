// SPDX-License-Identifier: Apache-2.0
// Which key tiles a group of query rows visits, last to first. Every mask of core/mask.h is an
// interval of keys a row; a window with open ends is no mask or a causal one.
#pragma once

#include "core/mask.h"
#include "core/tile_table.h"
#include "sm90/attention/args.h"

namespace octavo::sm90 {

struct TileRange {
  int first = 0, last = 0;  // [first, last)
};

/// A value that all threads of a warp have, and of which the compiler then knows it: what follows
/// from it lives in uniform registers.
__device__ inline int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

__device__ inline WindowMask mask_of(const AttentionArgs& args, int batch) {
  return {args.sq, args.keys(batch), args.left, args.right};
}

/// Key tiles that any of the rows [m, m + rows) sees.
__device__ inline TileRange tiles_of(const WindowMask& mask, int m, int rows) {
  if (m >= mask.sq) return {};
  const auto [first, last] = block_range(mask, m, rows, kBlockN);
  return {static_cast<int>(first), static_cast<int>(last)};
}

/// Key tiles of which all of these rows see every key: they need no test of single scores.
__device__ inline TileRange full_tiles_of(const WindowMask& mask, int m, int rows) {
  if (m >= mask.sq) return {};
  const std::int64_t last_row = min(std::int64_t{m} + rows, mask.sq) - 1;
  return {static_cast<int>((mask.row(last_row).begin + kBlockN - 1) / kBlockN),
          static_cast<int>(mask.row(m).end / kBlockN)};
}

}  // namespace octavo::sm90
