// SPDX-License-Identifier: Apache-2.0
#include "emulate/epilogue.h"

#include <cmath>

#include "core/load.h"
#include "core/softmax_constants.h"

namespace octavo::emulate {
namespace {

/// The row sum: lane 0 of a product with ones, or residues pairwise.
float row_sum(const float* l, bool sums_codes) {
  if (sums_codes) return l[0];
  return ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
}

}  // namespace

void epilogue(Tile& tile, const AttentionProblem& problem) {
  const std::int64_t dv = tile.v.cols;
  // Inside a softcap the shift has been put back already.
  const double shift_scale = problem.softcap > 0 ? 0.0 : problem.sm_scale;
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    const float l = row_sum(tile.sum + i * simd::kLanes, tile.sums_codes);
    const float inverse = l == 0 ? 0.0f : 1.0f / l;
    float* out = tile.out + i * dv;
    for (std::int64_t c = 0; c < dv; ++c) out[c] = l == 0 ? 0.0f : out[c] * inverse;
    const double log2_sum = static_cast<double>(tile.row_m[i]) + std::log2(l) - kPExponentShift;
    const double lse = l == 0 ? -HUGE_VAL : log2_sum * kLn2 + shift_scale * tile.shift[i];
    tile.lse[i] = static_cast<float>(lse);
  }
}

void store(Tile& tile, const AttentionProblem& problem) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    std::byte* row = row_pointer(problem.out, tile.b, tile.m + i, tile.h);
    const float* out = tile.out + i * tile.v.cols;
    for (std::int64_t c = 0; c < problem.dims.dv; ++c) {
      store_element(row, problem.out.dtype, c, out[c]);
    }
    if (!problem.lse.present()) continue;
    store_row_value(problem.lse, tile.b, tile.h, tile.m + i, tile.lse[i]);
  }
}

}  // namespace octavo::emulate
