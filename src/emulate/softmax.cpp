// SPDX-License-Identifier: Apache-2.0
#include "emulate/softmax.h"

#include <algorithm>
#include <cmath>

#include "core/softmax_constants.h"

namespace octavo::emulate {
namespace {

/// 2^x by the vector function, so that alpha and p come from the same arithmetic.
float exp2_one(float x) {
  float in[simd::kLanes] = {}, out[simd::kLanes], sum[simd::kLanes] = {};
  in[0] = x;
  simd::stages().exp2_sum(in, simd::kLanes, 1.0f, 0.0f, 0.0f, out, sum);
  return out[0];
}

/// Brings row i's scores to the form t = s * factor and hides what the mask hides.
void scale_row(Tile& tile, const SoftmaxStep& step, std::int64_t i) {
  float* s = tile.s + i * tile.block_n;
  const float descale_k = step.k_per_token ? 1.0f : step.k_descale[0];
  const float descale = tile.q_descale[i] * descale_k;
  if (step.k_per_token) simd::stages().scale_columns(s, step.k_descale, tile.block_n);
  if (step.scale.softcap_scale > 0) {
    simd::stages().softcap(s, tile.block_n, clamp_factor(descale * step.scale.softcap_scale),
                           tile.shift[i] * step.scale.softcap_scale, step.scale.softcap_log2);
    tile.factor[i] = 1.0f;
  } else {
    tile.factor[i] = clamp_factor(descale * step.scale.sm_scale_log2,
                                  tile.zero > 0 ? kInt8MostFactor : kMostFactor);
  }
  const KeyRange visible = columns_of(step.mask, tile, i, step.n);
  std::fill(s, s + visible.begin, kMinusInfinity);
  std::fill(s + std::max(visible.begin, visible.end), s + tile.block_n, kMinusInfinity);
}

}  // namespace

void softmax(Tile& tile, const SoftmaxStep& step) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    scale_row(tile, step, i);
    const float* s = tile.s + i * tile.block_n;
    const float m_old = tile.row_m[i];
    const float largest = (simd::stages().row_max(s, tile.block_n) - tile.zero) * tile.factor[i];
    const float m_new = largest > m_old + step.slack ? largest : m_old;
    tile.row_m[i] = m_new;
    const bool seen = m_new != kMinusInfinity;
    tile.alpha[i] = seen ? exp2_one(m_old - m_new) : 1.0f;
    if (step.path == SoftmaxPath::exact) {
      const float offset =
          std::fma(-tile.zero, tile.factor[i], kPExponentShift - (seen ? m_new : 0.0f));
      float unused[simd::kLanes] = {};
      float* sum = tile.sums_codes ? unused : tile.sum + i * simd::kLanes;
      simd::stages().exp2_sum(s, tile.block_n, tile.factor[i], offset, tile.alpha[i],
                              tile.weights + i * tile.block_n, sum);
    }
  }
}

}  // namespace octavo::emulate
