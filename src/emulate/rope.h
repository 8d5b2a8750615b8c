// SPDX-License-Identifier: Apache-2.0
// Stage `rope`: a row of Q, K or V in FP32, padded with zeros, with its rotary position embedding
// where the call has one (core/rope.h holds the formula). Every later stage reads rows through
// this.
#pragma once

#include "core/problem.h"

namespace octavo::emulate {

class RowSource {
 public:
  enum class Role { q, k, v };

  RowSource(const AttentionProblem& problem, Role role);

  /// Row `row` of (b, h): padded_d() values.
  void row(std::int64_t b, std::int64_t h, std::int64_t row, float* out) const;
  int padded_d() const { return padded_d_; }
  DType dtype() const { return x_.dtype; }

 private:
  void embed(std::int64_t row, float* x) const;

  TensorView x_;
  std::optional<Rope> rope_;
  std::int64_t offset_ = 0;
  int padded_d_;
};

}  // namespace octavo::emulate
