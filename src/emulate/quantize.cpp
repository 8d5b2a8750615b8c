// SPDX-License-Identifier: Apache-2.0
#include "emulate/quantize.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/parallel.h"
#include "emulate/amax.h"
#include "emulate/cast.h"
#include "emulate/rotate.h"
#include "emulate/scale.h"
#include "emulate/smooth.h"

namespace octavo::emulate {
namespace {

const Operand& operand_of(const AttentionProblem& problem, OperandQuantiser::Role role) {
  switch (role) {
    case OperandQuantiser::Role::q: return problem.q;
    case OperandQuantiser::Role::k: return problem.k;
    case OperandQuantiser::Role::v: break;
  }
  return problem.v;
}

Granularity granularity_of(const Recipe& recipe, OperandQuantiser::Role role) {
  switch (role) {
    case OperandQuantiser::Role::q: return recipe.q;
    case OperandQuantiser::Role::k: return recipe.k;
    case OperandQuantiser::Role::v: break;
  }
  return recipe.v;
}

}  // namespace

OperandQuantiser::OperandQuantiser(const AttentionProblem& problem, Role role)
    : problem_(problem),
      operand_(operand_of(problem, role)),
      role_(role),
      source_(problem, role),
      passes_through_(problem.multiplied_as_is(operand_)),
      granularity_(passes_through_ ? operand_.descale.granularity
                                   : granularity_of(problem.recipe, role)) {
  if (problem.recipe.rotate && role != Role::v && !passes_through_) {
    signs_.emplace(problem.recipe.seed);
    norm_ = hadamard_norm(hadamard_size(padded_d()));
  }
}

std::int64_t OperandQuantiser::length(std::int64_t b) const {
  return role_ == Role::q ? problem_.dims.sq : problem_.key_lengths[static_cast<std::size_t>(b)];
}

DType OperandQuantiser::format() const {
  switch (role_) {
    case Role::q: return problem_.q_format();
    case Role::k: return problem_.k_format();
    case Role::v: break;
  }
  return problem_.v_format();
}

Granularity OperandQuantiser::granularity() const { return granularity_; }

const float* OperandQuantiser::mean(std::int64_t b, std::int64_t h) const {
  if (means_.empty()) return nullptr;
  return means_[entry(b, h)].data();
}

std::size_t OperandQuantiser::entry(std::int64_t b, std::int64_t h) const {
  return static_cast<std::size_t>(b * operand_.x.shape[2] + h);
}

void OperandQuantiser::prepare(int threads) {
  if (passes_through_) return;
  const std::int64_t heads = operand_.x.shape[2], entries = problem_.dims.b * heads;
  const auto count = static_cast<std::size_t>(entries);
  if (role_ == Role::k && problem_.recipe.smooth_k) {
    means_.resize(count);
    parallel_for(entries, threads, [&](std::int64_t i, int) {
      const std::int64_t b = i / heads;
      std::vector<float> mean = key_mean(source_, b, i % heads, length(b));
      if (signs_) rotate(mean.data(), padded_d(), *signs_, DType::f32);
      means_[static_cast<std::size_t>(i)] = std::move(mean);
    });
  }
  if (granularity_ != Granularity::head && granularity_ != Granularity::tensor) return;
  amax_.resize(count);
  parallel_for(entries, threads, [&](std::int64_t i, int) {
    amax_[static_cast<std::size_t>(i)] = head_amax(i / heads, i % heads);
  });
  if (granularity_ == Granularity::tensor && !amax_.empty()) {
    std::fill(amax_.begin(), amax_.end(),
              std::accumulate(amax_.begin(), amax_.end(), 0.0f, larger));
  }
}

void OperandQuantiser::rotated_row(std::int64_t b, std::int64_t h, std::int64_t row,
                                   float* out) const {
  source_.row(b, h, row, out);
  if (signs_) rotate(out, padded_d(), *signs_, source_.dtype());
}

void OperandQuantiser::transformed_row(std::int64_t b, std::int64_t h, std::int64_t row,
                                       float* out) const {
  rotated_row(b, h, row, out);
  if (const float* m = mean(b, h)) {
    for (int c = 0; c < padded_d(); ++c) out[c] -= m[c];
  }
}

float OperandQuantiser::score_shift(std::int64_t b, std::int64_t h, std::int64_t row,
                                    const float* mean) const {
  std::vector<float> x(static_cast<std::size_t>(padded_d()));
  rotated_row(b, h, row, x.data());
  const int n = signs_ ? hadamard_size(padded_d()) : 1;
  return dot_mean(x.data(), mean, padded_d()) / static_cast<float>(n);
}

float OperandQuantiser::head_amax(std::int64_t b, std::int64_t h) const {
  std::vector<float> row(static_cast<std::size_t>(padded_d()));
  float largest = 0;
  for (std::int64_t i = 0; i < length(b); ++i) {
    transformed_row(b, h, i, row.data());
    largest = larger(largest, amax(row.data(), padded_d(), format()));
  }
  return largest;
}

/// Of rows past the end: that of the head or the tensor, where there is one.
float OperandQuantiser::descale_of_nothing(std::int64_t b, std::int64_t h) const {
  if (!is_quantised(format())) return 1.0f;
  if (amax_.empty()) return scale(0.0f, format(), 1.0f).descale;
  return scale(amax_[entry(b, h)], format(), norm_).descale;
}

void OperandQuantiser::rows(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t count,
                            std::uint8_t* codes, float* descale, CastCounts& counts) const {
  const std::int64_t valid = std::clamp<std::int64_t>(length(b) - row, 0, count);
  const std::int64_t row_bytes = padded_d() * code_bytes();
  std::memset(codes + valid * row_bytes, 0, static_cast<std::size_t>((count - valid) * row_bytes));
  std::fill(descale + valid, descale + count, descale_of_nothing(b, h));
  if (passes_through_) return pass_through(b, h, row, valid, codes, descale);

  const std::int64_t step = std::min(count, rows_per_block(granularity_, role_ == Role::q, count));
  std::vector<float> values(static_cast<std::size_t>(step * padded_d()));
  for (std::int64_t first = 0; first < valid; first += step) {
    const std::int64_t n = std::min(step, valid - first);
    for (std::int64_t i = 0; i < n; ++i) {
      transformed_row(b, h, row + first + i, values.data() + i * padded_d());
    }
    const float a =
        amax_.empty() ? amax(values.data(), n * padded_d(), format()) : amax_[entry(b, h)];
    const ScalePair pair = scale(a, format(), norm_);
    cast(values.data(), n * padded_d(), pair.scale, format(), codes + first * padded_d(), counts);
    std::fill(descale + first, descale + first + n, pair.descale);
    // All rows of a block share its descale, those past the end as well: one value a tile.
    if (n < step)
      std::fill(descale + first + n, descale + std::min(first + step, count), pair.descale);
  }
}

void OperandQuantiser::pass_through(std::int64_t b, std::int64_t h, std::int64_t row,
                                    std::int64_t count, std::uint8_t* codes, float* descale) const {
  const std::int64_t bytes = operand_.x.shape[3] * code_bytes();
  const std::int64_t row_bytes = padded_d() * code_bytes();
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint8_t* out = codes + i * row_bytes;
    std::memcpy(out, row_pointer(operand_.x, b, row + i, h), static_cast<std::size_t>(bytes));
    std::memset(out + bytes, 0, static_cast<std::size_t>(row_bytes - bytes));
    descale[i] = operand_.quantised() ? operand_.descale.at(b, h, row + i) : 1.0f;
  }
}

}  // namespace octavo::emulate
