// SPDX-License-Identifier: Apache-2.0
#include "emulate/rope.h"

#include <algorithm>

#include "core/load.h"
#include "core/rope.h"
#include "core/tile_table.h"

namespace octavo::emulate {

RowSource::RowSource(const AttentionProblem& problem, Role role)
    : x_(role == Role::q ? problem.q.x : (role == Role::k ? problem.k.x : problem.v.x)),
      padded_d_(padded_head_dim(x_.shape[3])) {
  if (role == Role::v || !problem.rope) return;
  rope_ = problem.rope;
  offset_ = role == Role::q ? rope_->q_offset : rope_->k_offset;
}

void RowSource::row(std::int64_t b, std::int64_t h, std::int64_t row, float* out) const {
  const std::int64_t d = x_.shape[3];
  load_row(row_pointer(x_, b, row, h), x_.dtype, d, out);
  std::fill(out + d, out + padded_d_, 0.0f);
  if (rope_) embed(row, out);
}

void RowSource::embed(std::int64_t row, float* x) const {
  const std::int64_t half = rope_->cos.shape[1];
  float cos[kMaxHeadDim / 2], sin[kMaxHeadDim / 2];
  load_table_row(rope_->cos, offset_ + row, cos);
  load_table_row(rope_->sin, offset_ + row, sin);
  rope_row(x, cos, sin, half, rope_->style);
}

}  // namespace octavo::emulate
