// SPDX-License-Identifier: Apache-2.0
// The stages rotate, smooth, amax, scale and cast on one operand, a block of rows at a time.
#pragma once

#include <optional>
#include <vector>

#include "core/hadamard.h"
#include "core/problem.h"
#include "emulate/rope.h"

namespace octavo::emulate {

/// Turns rows of Q, K or V into codes and descales. An operand that came in 8 bits passes through,
/// and so does one that stays in 16: its elements are the codes, of two bytes, their descale 1.
class OperandQuantiser {
 public:
  using Role = RowSource::Role;

  OperandQuantiser(const AttentionProblem& problem, Role role);

  /// Whole-sequence statistics: K's mean, and amax where a descale spans a head or the tensor.
  void prepare(int threads);

  /// Rows [row, row + count) of (b, h): codes [count][padded_d()] and one descale a row. A code has
  /// code_bytes() bytes.
  /// row is a multiple of the quantisation block. Rows past the valid length become code 0.
  void rows(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t count,
            std::uint8_t* codes, float* descale, CastCounts& counts) const;

  /// Valid rows of a batch entry: its key length, or sq.
  std::int64_t length(std::int64_t b) const;
  int padded_d() const { return source_.padded_d(); }
  const RowSource& source() const { return source_; }
  DType format() const;
  std::int64_t code_bytes() const { return static_cast<std::int64_t>(size_of(format())); }
  Granularity granularity() const;

  /// K only: the mean of (b, h), rotated where K is, or null without smoothing.
  const float* mean(std::int64_t b, std::int64_t h) const;

  /// Q only: q . mean(K) of a row, given that mean as K's quantiser has it.
  float score_shift(std::int64_t b, std::int64_t h, std::int64_t row, const float* mean) const;

 private:
  void rotated_row(std::int64_t b, std::int64_t h, std::int64_t row, float* out) const;
  void transformed_row(std::int64_t b, std::int64_t h, std::int64_t row, float* out) const;
  void pass_through(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t count,
                    std::uint8_t* codes, float* descale) const;
  float head_amax(std::int64_t b, std::int64_t h) const;
  /// Of means_ and amax_.
  std::size_t entry(std::int64_t b, std::int64_t h) const;
  float descale_of_nothing(std::int64_t b, std::int64_t h) const;

  const AttentionProblem& problem_;
  const Operand& operand_;
  Role role_;
  RowSource source_;
  bool passes_through_;
  Granularity granularity_;
  std::optional<SignBits> signs_;
  float norm_ = 1.0f;  // the factor that the rotation leaves out
  std::vector<std::vector<float>> means_;
  std::vector<float> amax_;  // per (b, h) where granularity is head or tensor
};

}  // namespace octavo::emulate
