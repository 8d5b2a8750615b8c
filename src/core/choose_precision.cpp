// SPDX-License-Identifier: Apache-2.0
#include "core/choose_precision.h"

#include <algorithm>

#include "core/copy_engine.h"
#include "core/tile_table.h"

namespace octavo {
namespace {

/// Of the kernels at 4k tokens on an H200, TFLOPS; d 96 and 192 lie between their neighbours.
struct Rates {
  double fp8, half;
};
constexpr Rates rates_of(int padded_d) {
  switch (padded_d) {
    case 64: return {629, 541};
    case 96: return {765, 615};
    case 128: return {899, 689};
    case 192: return {980, 745};
    default: return {1057, 804};
  }
}
constexpr double kQuantisedBytes = 3.4e12;  // a second, read and written
constexpr double kLaunches = 5e-6;          // seconds: those of the quantiser

/// Keys that a row sees, on average over rows at equal distances.
double keys_per_row(const AttentionParams& params, const Dims& n) {
  constexpr std::int64_t kRows = 16;
  const WindowMask mask{n.sq, n.sk, params.mask.left, params.mask.right};
  double sum = 0;
  for (std::int64_t i = 0; i < kRows; ++i) {
    const KeyRange keys = mask.row((2 * i + 1) * n.sq / (2 * kRows));
    sum += static_cast<double>(std::max<std::int64_t>(keys.end - keys.begin, 0));
  }
  return sum / kRows;
}

bool fits_16_bits(const AttentionParams& params) {
  const DType type = params.q.dtype;
  if (type != DType::bf16 && type != DType::f16) return false;
  return params.k.dtype == type && params.v.dtype == type && !params.rope &&
         copy_engine_reads(params.q) && copy_engine_reads(params.k) && copy_engine_reads(params.v);
}

}  // namespace

Precision choose_precision(const AttentionParams& params, const Dims& n) {
  if (!fits_16_bits(params)) return Precision::fp8;
  const Rates rates = rates_of(padded_head_dim(std::max(n.d, n.dv)));
  const double rows = static_cast<double>(n.b * n.hq) * static_cast<double>(n.sq);
  const double flop = 2.0 * rows * keys_per_row(params, n) * static_cast<double>(n.d + n.dv);
  const double gain = flop * (1e-12 / rates.half - 1e-12 / rates.fp8);
  const double elements = rows * static_cast<double>(n.d) + static_cast<double>(n.b * n.hkv) *
                                                                static_cast<double>(n.sk) *
                                                                static_cast<double>(n.d + n.dv);
  constexpr double kBytes = 3;  // of an element: two in, one out
  if (gain > elements * kBytes / kQuantisedBytes + kLaunches) return Precision::fp8;
  return params.q.dtype == DType::bf16 ? Precision::bf16 : Precision::fp16;
}

}  // namespace octavo
