// SPDX-License-Identifier: Apache-2.0
#include "emulate/requantise_p.h"

#include <algorithm>
#include <cmath>

#include "core/softmax_constants.h"

namespace octavo::emulate {
namespace {

/// Folds the keys' descales into row i of the weights; returns the row's scale.
float fold_descales(Tile& tile, const float* v_descale, std::int64_t i) {
  float* w = tile.weights + i * kBlockN;
  simd::stages().scale_columns(w, v_descale, kBlockN);
  const float scale = fold_scale(simd::stages().row_max(w, kBlockN));
  simd::stages().rescale(w, kBlockN, scale);
  return scale;
}

}  // namespace

void requantise_p(Tile& tile, const RequantiseStep& step, CastCounts& counts) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    std::uint8_t* codes = tile.p_codes + i * kBlockN;
    tile.unit[i] =
        step.v_per_token ? 1.0f / fold_descales(tile, step.v_descale, i) : step.v_descale[0];
    if (step.path == SoftmaxPath::exact) {
      simd::stages().cast_p(tile.weights + i * kBlockN, kBlockN, codes);
    } else {
      const float m = tile.row_m[i] == kMinusInfinity ? 0.0f : tile.row_m[i];
      const float scale = 8.0f * tile.factor[i];
      simd::stages().direct_codes(tile.s + i * kBlockN, kBlockN, scale,
                                  std::fma(-tile.zero, scale, kDirectTop - 8.0f * m), codes);
    }
    const KeyRange visible = columns_of(step.mask, tile, i, step.n);
    if (visible.empty()) continue;
    counts.total += visible.end - visible.begin;
    counts.flushed += std::count(codes + visible.begin, codes + visible.end, std::uint8_t{0});
  }
  tile.finite &= tile.p.decode(tile.p_codes.data(), tile.rows, DType::f8_e4m3);
}

}  // namespace octavo::emulate
