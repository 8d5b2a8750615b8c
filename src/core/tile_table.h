// SPDX-License-Identifier: Apache-2.0
// Tile sizes and the padded head dims: the one place to change them.
#pragma once

#include <array>
#include <cstdint>

#include "core/quant_block.h"

namespace octavo {

/// Head dims that kernels are made for; others are padded with zeros to the next one.
inline constexpr std::array<int, 5> kHeadDims = {64, 96, 128, 192, 256};
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kHeadDimMultiple = 8;  // 16 bytes of BF16: one vector load

/// The head dim that `d` is padded to; 0 where none fits.
constexpr int padded_head_dim(std::int64_t d) {
  for (int candidate : kHeadDims) {
    if (d <= candidate) return candidate;
  }
  return 0;
}

struct TileShape {
  int block_m;  // query rows a thread block owns
  int block_n;  // keys a step of the online softmax takes
};

/// Tile of one head dim. block_n = 128 everywhere: one quantisation block of K and V a step, so
/// that descales are one number a tile; four k32 products of P V between promotions.
constexpr TileShape tile_shape(int padded_d) {
  switch (padded_d) {
    case 64: return {128, 128};   // two warpgroups of 64 rows share each K and V tile
    case 96: return {128, 128};   // as 64
    case 128: return {128, 128};  // S 64 + O 64 registers a thread: two warpgroups fit
    case 192: return {128, 128};  // O 96 registers a thread
    case 256: return {128, 128};  // O 128 registers a thread: at the limit of two warpgroups
    default: return {0, 0};
  }
}

inline constexpr int kBlockM = 128;
inline constexpr int kBlockN = 128;

static_assert(kQuantBlockKv % kBlockN == 0, "a key tile must not straddle two descales");
static_assert(kBlockM % kQuantBlockQ == 0, "a query tile must hold whole quantisation blocks");
static_assert(
    [] {
      for (int d : kHeadDims) {
        if (tile_shape(d).block_m != kBlockM || tile_shape(d).block_n != kBlockN) return false;
      }
      return true;
    }(),
    "the emulation walks keys in the kernels' steps: keep kBlockM and kBlockN equal to the table");

}  // namespace octavo
