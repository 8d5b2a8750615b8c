// SPDX-License-Identifier: Apache-2.0
#include "emulate/pv.h"

#include <algorithm>

#include "emulate/mma.h"

namespace octavo::emulate {
namespace {

constexpr float kMaxUnitRatio = 0x1p40f;

/// A [kBlockN][kLanes] matrix of ones: beside V it makes the product compute row sums of P8.
simd::Matrix ones() {
  static const std::vector<float> data(kBlockN * simd::kLanes, 1.0f);
  return {data.data(), data.data(), simd::kLanes};
}

/// Whether acc of row i cannot be brought to the unit of this step within FP32's range.
bool unit_is_far(const Tile& tile, std::int64_t i) {
  const float ratio = tile.acc_unit[i] / tile.unit[i];
  return !(ratio < kMaxUnitRatio && ratio > 1.0f / kMaxUnitRatio);
}

void promote_row(Tile& tile, std::int64_t i) {
  const std::int64_t dv = tile.v.cols;
  simd::stages().promote(tile.out + i * dv, tile.acc + i * dv, dv, tile.acc_unit[i],
                         tile.pending[i]);
  if (tile.sums_codes) {
    simd::stages().promote(tile.sum + i * simd::kLanes, tile.acc_sum + i * simd::kLanes,
                           simd::kLanes, 1.0f, tile.pending[i]);
  }
}

void start_row(Tile& tile, std::int64_t i) {
  const std::int64_t dv = tile.v.cols;
  std::fill(tile.acc + i * dv, tile.acc + (i + 1) * dv, 0.0f);
  std::fill(tile.acc_sum + i * simd::kLanes, tile.acc_sum + (i + 1) * simd::kLanes, 0.0f);
  tile.pending[i] = tile.alpha[i];
}

/// Brings row i of acc to this step's maximum and unit, by way of O where its unit is too far away.
/// A row decides for itself: under recipe strict_causal its neighbours may see later tokens.
void rescale_row(Tile& tile, std::int64_t i) {
  if (unit_is_far(tile, i)) {
    promote_row(tile, i);
    start_row(tile, i);
    return;
  }
  const std::int64_t dv = tile.v.cols;
  const float ratio = tile.acc_unit[i] / tile.unit[i];
  simd::stages().rescale(tile.acc + i * dv, dv, tile.alpha[i] * ratio);
  if (tile.sums_codes) {
    simd::stages().rescale(tile.acc_sum + i * simd::kLanes, simd::kLanes, tile.alpha[i]);
  }
  tile.pending[i] *= tile.alpha[i];
}

}  // namespace

void promote(Tile& tile) {
  for (std::int64_t i = 0; i < tile.rows; ++i) promote_row(tile, i);
  tile.steps_in_acc = 0;
}

void pv(Tile& tile, const KvHead& kv, std::int64_t key_tile, const PvStep& step) {
  const std::int64_t dv = tile.v.cols;
  const auto code_bytes = static_cast<std::int64_t>(size_of(step.v_format));
  const Accumulator model = accumulator_of(step.v_format, step.model);
  tile.finite &= tile.v.decode(kv.v.data() + key_tile * tile.block_n * dv * code_bytes,
                               tile.block_n, step.v_format);
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    if (tile.steps_in_acc == 0) {
      start_row(tile, i);
    } else {
      rescale_row(tile, i);
    }
  }
  std::copy(tile.unit, tile.unit + tile.rows, tile.acc_unit);
  mma(model, tile.p.matrix(), tile.v.matrix(), tile.acc.data(), dv, tile.rows, dv, tile.block_n,
      tile.finite);
  if (tile.sums_codes) {
    mma(model, tile.p.matrix(), ones(), tile.acc_sum.data(), simd::kLanes, tile.rows, simd::kLanes,
        tile.block_n, tile.finite);
  }
  ++tile.steps_in_acc;
  if (tile.steps_in_acc == step.promote_every) promote(tile);
}

}  // namespace octavo::emulate
