// SPDX-License-Identifier: Apache-2.0
#include "emulate/requantise_p.h"

#include <algorithm>
#include <cmath>

#include "core/load.h"
#include "core/softmax_constants.h"

namespace octavo::emulate {
namespace {

/// Folds the keys' descales into row i of the weights; returns the row's scale.
float fold_descales(Tile& tile, const float* v_descale, std::int64_t i) {
  float* w = tile.weights + i * tile.block_n;
  simd::stages().scale_columns(w, v_descale, tile.block_n);
  const float scale = fold_scale(simd::stages().row_max(w, tile.block_n));
  simd::stages().rescale(w, tile.block_n, scale);
  return scale;
}

/// Codes of E4M3 of row i of the weights, or of its scores.
void cast_row(Tile& tile, const RequantiseStep& step, std::int64_t i, CastCounts& counts) {
  std::uint8_t* codes = tile.p_codes + i * tile.block_n;
  if (step.path == SoftmaxPath::exact) {
    simd::stages().cast_p(tile.weights + i * tile.block_n, tile.block_n, codes);
  } else {
    const float m = tile.row_m[i] == kMinusInfinity ? 0.0f : tile.row_m[i];
    const float scale = 8.0f * tile.factor[i];
    simd::stages().direct_codes(tile.s + i * tile.block_n, tile.block_n, scale,
                                std::fma(-tile.zero, scale, kDirectTop - 8.0f * m), codes);
  }
  const KeyRange visible = columns_of(step.mask, tile, i, step.n);
  if (visible.empty()) return;
  counts.total += visible.end - visible.begin;
  counts.flushed += std::count(codes + visible.begin, codes + visible.end, std::uint8_t{0});
}

/// The same in BF16 or FP16.
void round_row(Tile& tile, DType format, std::int64_t i) {
  const std::int64_t first = i * tile.block_n;
  store_row(tile.weights + first, format, tile.block_n,
            reinterpret_cast<std::byte*>(tile.p_codes + 2 * first));
}

}  // namespace

void requantise_p(Tile& tile, const RequantiseStep& step, CastCounts& counts) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    tile.unit[i] =
        step.v_per_token ? 1.0f / fold_descales(tile, step.v_descale, i) : step.v_descale[0];
    if (step.format == DType::f8_e4m3) {
      cast_row(tile, step, i, counts);
    } else {
      round_row(tile, step.format, i);
    }
  }
  tile.finite &= tile.p.decode(tile.p_codes.data(), tile.rows, step.format);
}

}  // namespace octavo::emulate
