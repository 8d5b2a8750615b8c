// SPDX-License-Identifier: Apache-2.0
#include "workload/bounds.h"

#include <algorithm>
#include <cmath>

namespace octavo::workload {
namespace {

// One distribution, 16-bit operands quantised to E4M3, default softmax scale.
struct Entry {
  double high;
  double row_cosine;
  double lse;
};

// E5M2 keeps two mantissa bits: its rounding errors are twice E4M3's, in K and V of three operands.
constexpr double kE5m2Factor = 1.7;

// The softmax scale against 1 / sqrt(d): how much hotter scores are than the table assumes.
double heat(const Problem& p) {
  return p.scale ? std::max(1.0, *p.scale * std::sqrt(static_cast<double>(p.d))) : 1.0;
}

double keys_per_row(const Problem& p) {
  return static_cast<double>(visible_pairs(p)) / static_cast<double>(p.b * p.sq);
}

// Whether a row may have few keys.
bool has_short_rows(const Problem& p) {
  return p.sk < 64 || keys_per_row(p) < static_cast<double>(p.sk);
}

bool is_spread(const Problem& p) {
  return p.dist == Distribution::normal || p.dist == Distribution::uniform;
}

Entry entry_of(const Problem& p) {
  switch (p.dist) {
    case Distribution::normal: return {0.10, 0.85, 0.3};
    case Distribution::uniform: return {0.08, 0.93, 0.1};
    // Two outliers that meet make a score of several hundred, and it decides its row alone.
    case Distribution::outlier: return {0.20, 0.6, 4};
    case Distribution::channel:
      // Unless smoothed away, the offset's rounding error drowns the scores: that is the point.
      if (p.recipe.smooth_k) return {0.09, 0.9, 0.3};
      return {3.0, -1, 10};
    case Distribution::sink: {
      // Scores against key 0 are 300 scale N(0, 1) and err by 3.7 % of that: rows at the edge
      // between sink and no sink change sides.
      const double score = 300 * p.scale.value_or(1 / std::sqrt(static_cast<double>(p.d)));
      return {0.22 * std::max(1.0, score / 26.5), -1, 0.25 * score / heat(p)};
    }
    case Distribution::wide: {
      // One scale for rows 2^30 apart flushes whole heads. Of any recipe: a row that sees only tiny
      // values in a block of large ones loses them.
      const bool tensor = p.recipe.q == Granularity::tensor || p.recipe.k == Granularity::tensor ||
                          p.recipe.v == Granularity::tensor;
      return {tensor ? 1.0 : 0.12, -1, 0.8};
    }
  }
  return {};
}

// Operands that are FP8 for both engines: what is left is the rounding of P, 2.6 % where a row has
// many weights and 0 where it has one.
Bounds stored_bounds(const Problem& p) {
  Bounds bounds{0, 0.06, 0.9, 0};
  if (p.softmax == SoftmaxPath::direct) {
    bounds.lse = 0.1;  // sums of codes that follow the logarithm
  } else if (p.acc == Accumulator::hopper) {
    bounds.lse = 0.12 * heat(p);  // scores of a sink lose 2^-13 of themselves
  } else if (p.recipe.v == Granularity::token) {
    bounds.lse = 2e-4;  // FP32 sums of the weights
  } else {
    // Sums of E4M3 weights, none of which is off by more than 1/17 of itself. A row comes half as
    // far where one weight stands beside the largest, which is exact: measured up to 0.027, the
    // worst row of 300 random problems.
    bounds.lse = 0.06;
  }
  // Subnormal codes are off by up to 2^-18 of the largest weight, and smaller weights missing.
  if (p.recipe.v != Granularity::token) bounds.lse += 0x1p-18 * static_cast<double>(p.sk);
  // A weight too small for E4M3 may belong to a value 2^40 times those of the others.
  if (p.dist == Distribution::wide) bounds.row_cosine = -1;
  if (is_spread(p) && keys_per_row(p) >= 16 && heat(p) == 1) bounds.low = 0.005;
  return bounds;
}

// The most that rounding to a type of 16 bits takes from a number, of itself.
double half_unit(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0;
}

// What FP32 costs the scores, which are large where K has offsets or a sink.
double score_error(const Problem& p) {
  switch (p.dist) {
    case Distribution::channel:
    case Distribution::sink: return 1e-4 * heat(p);
    case Distribution::outlier: return 4e-5 * heat(p);
    default: return 1e-5 * heat(p);
  }
}

// What is left where nothing is quantised: the rounding of P, and of both outputs. Over mantissas
// of all sizes a rounding is 0.42 of half a unit in the mean square, 0.58 where all are near 1.
// Measured on 3000 random problems with the output in FP32: typically 0.12 % (BF16) and 0.015 %
// (FP16), at most 0.19 % and 0.028 %; with both in BF16 at most 0.31 %.
Bounds bounds_of_16_bits(const Problem& p) {
  const double of_p = half_unit(default_input(p.precision));
  Bounds bounds;
  bounds.lse = score_error(p);
  // An error of a score is one of its weight.
  bounds.high = 0.6 * std::hypot(of_p, half_unit(p.out)) + bounds.lse;
  // Few rows do not average out.
  if (p.b * p.hq * p.sq < 256) bounds.high *= 2;
  // A weight that sets the maximum is exact, so that rows of few keys err less.
  if (is_spread(p) && keys_per_row(p) >= 16 && heat(p) == 1) bounds.low = 0.1 * of_p;
  bounds.row_cosine = 0.999;
  return bounds;
}

}  // namespace

Bounds reference_bounds(const Problem& p) {
  if (p.precision != Precision::fp8) return bounds_of_16_bits(p);
  if (is_fp8(p.in)) return stored_bounds(p);
  const Entry entry = entry_of(p);
  const double hot = heat(p);
  // Errors of scores grow with the scale, those of V and P do not. The low bound is well above what
  // rounding the output to BF16 costs, 0.17 %.
  Bounds bounds{0.012, entry.high * (1 + 0.25 * (hot - 1)), entry.row_cosine, entry.lse * hot};
  // Few numbers may all happen to be near the grid.
  if (p.b * p.hkv * p.sk * p.dv < 1024) bounds.low = 0.004;
  // Few rows do not average out: one that a rounded score tips over may carry the whole norm.
  const std::int64_t rows = p.b * p.hq * p.sq;
  if (rows < 256) bounds.high *= 2;
  // Where every row falls into the sink, all of the output is a thousandth of what leaks into it.
  if (p.dist == Distribution::sink && (rows < 32 || keys_per_row(p) < 4)) bounds.high = 3;
  if (p.recipe.kv_format == DType::f8_e5m2) {
    bounds.low *= kE5m2Factor;
    bounds.high *= kE5m2Factor;
    bounds.lse *= kE5m2Factor;
    if (bounds.row_cosine > 0) bounds.row_cosine -= 0.1;
  }
  return bounds;
}

// Of 300 random problems on an H200 none differed by more than 0.2 % (typical are 0.001 %), but for
// 0.26 % with a softcap, whose tanh is another function (typical are 0.03 %). A weight that a last
// bit tips over moves by up to 1/8 of itself: much in a row of few keys, nothing in the norm of all
// rows. With a softcap that happens, and most where a row has two keys and their weights are 1 and
// 0.5: the sum goes from 1.5 to 1.5625, the LSE up by 0.041. Without one it takes a weight within
// 2^-20 of the middle between two codes: seen once, 0.0051, where 28,000 rows had 130 keys; the
// emulation with exponentials 1.2e-6 larger differs by the same from itself.
Bounds emulation_bounds(const Problem& p) {
  if (p.precision != Precision::fp8) {
    // A fraction of what rounding P costs: single roundings of P and of the output go the other
    // way.
    const double unit = std::hypot(half_unit(default_input(p.precision)), half_unit(p.out));
    return {0, 0.2 * unit + score_error(p), 0.999, score_error(p)};
  }
  const double tips_over = p.softcap > 0 ? 0.042 : 6.5e-3;
  return {0, p.softcap > 0 ? 4e-3 : 2e-3, 0.999, has_short_rows(p) ? tips_over : 5e-3};
}

}  // namespace octavo::workload
