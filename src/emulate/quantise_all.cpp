// SPDX-License-Identifier: Apache-2.0
// quantize(): every block of Q, K and V through the stages rotate .. cast, into row-major tensors.
#include <algorithm>
#include <cstring>

#include "core/parallel.h"
#include "core/tile_table.h"
#include "emulate/emulate.h"
#include "emulate/quantize.h"

namespace octavo::emulate {
namespace {

constexpr std::int64_t kStep = 128;  // rows a task takes: whole quantisation blocks of any operand
static_assert(kStep % kQuantBlockQ == 0 && kStep % kQuantBlockKv == 0);

std::vector<std::int64_t> descale_shape(Granularity granularity, std::int64_t b, std::int64_t h,
                                        std::int64_t rows, bool is_query) {
  switch (granularity) {
    case Granularity::tensor: return {1};
    case Granularity::head: return {b, h};
    case Granularity::block: return {b, h, ceil_div(rows, is_query ? kQuantBlockQ : kQuantBlockKv)};
    case Granularity::token: return {b, h, rows};
  }
  return {};
}

/// Descales of one (b, h) and a step of rows, thinned out from one a row.
void store_descales(QuantizedTensor& out, std::int64_t b, std::int64_t h, std::int64_t row,
                    std::int64_t rows, const float* descale, bool is_query) {
  const std::int64_t heads = out.shape[2];
  if (out.granularity == Granularity::tensor || out.granularity == Granularity::head) {
    const std::int64_t entry = b * heads + h;  // of a tensor the first, like all others
    if (row == 0 && static_cast<std::size_t>(entry) < out.descale.size()) {
      out.descale[static_cast<std::size_t>(entry)] = descale[0];
    }
    return;
  }
  const std::int64_t step = rows_per_block(out.granularity, is_query, out.shape[1]);
  const std::int64_t entries = out.descale_shape[2];
  for (std::int64_t i = 0; i < rows; i += step) {
    const std::int64_t at = (b * heads + h) * entries + (row + i) / step;
    out.descale[static_cast<std::size_t>(at)] = descale[i];
  }
}

QuantizedTensor quantise_operand(const AttentionProblem& problem, const TensorView& x,
                                 OperandQuantiser::Role role, const OperandQuantiser& quantiser) {
  const bool is_query = role == OperandQuantiser::Role::q;
  const bool rotated = problem.recipe.rotate && role != OperandQuantiser::Role::v;
  const std::int64_t b = x.shape[0], s = x.shape[1], h = x.shape[2];
  const std::int64_t padded = quantiser.padded_d();

  QuantizedTensor out;
  out.dtype = quantiser.format();
  out.shape = {b, s, h, rotated ? padded : x.shape[3]};
  out.codes.resize(static_cast<std::size_t>(b * s * h * out.shape[3]));
  out.granularity = quantiser.granularity();
  out.descale_shape = descale_shape(out.granularity, b, h, s, is_query);
  std::int64_t entries = 1;
  for (std::int64_t extent : out.descale_shape) entries *= extent;
  out.descale.resize(static_cast<std::size_t>(entries), scale_of(0.0f, out.dtype).descale);

  const std::int64_t steps = ceil_div(s, kStep);
  parallel_for(b * h * steps, problem.threads, [&](std::int64_t i, int) {
    const std::int64_t entry = i / steps, row = i % steps * kStep;
    const std::int64_t rows = std::min(kStep, s - row);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(kStep * padded));
    std::vector<float> descale(static_cast<std::size_t>(kStep));
    CastCounts counts;
    quantiser.rows(entry / h, entry % h, row, rows, codes.data(), descale.data(), counts);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = ((entry / h * s + row + r) * h + entry % h) * out.shape[3];
      std::memcpy(out.codes.data() + at, codes.data() + r * padded,
                  static_cast<std::size_t>(out.shape[3]));
    }
    store_descales(out, entry / h, entry % h, row, rows, descale.data(), is_query);
  });
  return out;
}

std::vector<float> score_shifts(const AttentionProblem& problem, const OperandQuantiser& q,
                                const OperandQuantiser& k) {
  const Dims& n = problem.dims;
  std::vector<float> shift(static_cast<std::size_t>(n.b * n.hq * n.sq));
  parallel_for(n.b * n.hq, problem.threads, [&](std::int64_t i, int) {
    const std::int64_t b = i / n.hq, h = i % n.hq;
    for (std::int64_t s = 0; s < n.sq; ++s) {
      shift[static_cast<std::size_t>(i * n.sq + s)] =
          q.score_shift(b, h, s, k.mean(b, h / n.group()));
    }
  });
  return shift;
}

}  // namespace

QuantizedQkv quantise_all(const AttentionProblem& problem) {
  using Role = OperandQuantiser::Role;
  OperandQuantiser q(problem, Role::q), k(problem, Role::k), v(problem, Role::v);
  for (OperandQuantiser* x : {&q, &k, &v}) x->prepare(problem.threads);
  QuantizedQkv out;
  out.q = quantise_operand(problem, problem.q.x, Role::q, q);
  out.k = quantise_operand(problem, problem.k.x, Role::k, k);
  out.v = quantise_operand(problem, problem.v.x, Role::v, v);
  if (problem.recipe.smooth_k) out.score_shift = score_shifts(problem, q, k);
  out.head_dim = problem.dims.d;
  return out;
}

}  // namespace octavo::emulate
