// SPDX-License-Identifier: Apache-2.0
// Which key tiles a group of query rows visits, last to first. Every mask of core/mask.h is an
// interval of keys a row; a window with open ends is no mask or a causal one.
#pragma once

#include "core/mask.h"
#include "core/tile_table.h"
#include "sm90/attention/args.h"

namespace octavo::sm90 {

/// Key tiles [first, last).
struct TileRange {
  int first = 0, last = 0;
};

/// A value that all threads of a warp have, and of which the compiler then knows it: what follows
/// from it lives in uniform registers.
__device__ inline int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

using KernelMask = BasicWindowMask<int>;

/// The mask of a batch entry with `keys` valid keys.
__device__ inline KernelMask mask_of(const AttentionArgs& args, int keys) {
  return {args.sq, keys, args.left, args.right};
}

/// Key tiles that any of the rows [m, m + rows) sees.
__device__ inline TileRange tiles_of(const KernelMask& mask, int m, int rows) {
  if (m >= mask.sq) return {};
  const auto [first, last] = block_range(mask, m, rows, kBlockN);
  return {first, last};
}

/// Key tiles of which all of these rows see every key: they need no test of single scores.
__device__ inline TileRange full_tiles_of(const KernelMask& mask, int m, int rows) {
  if (m >= mask.sq) return {};
  const auto [first, last] = full_block_range(mask, m, rows, kBlockN);
  return {first, last};
}

}  // namespace octavo::sm90
