// SPDX-License-Identifier: Apache-2.0
#include "emulate/attend.h"

#include <algorithm>
#include <variant>

#include "core/load.h"
#include "core/softmax_constants.h"
#include "core/split.h"
#include "emulate/epilogue.h"
#include "emulate/merge.h"
#include "emulate/pv.h"
#include "emulate/qk.h"
#include "emulate/requantise_p.h"
#include "emulate/softmax.h"

namespace octavo::emulate {
namespace {

/// q . mean(K) of every row, or what the caller says it was for operands quantised elsewhere.
void load_shifts(Tile& tile, const AttentionProblem& problem, const OperandQuantiser& q,
                 const float* mean) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    if (problem.score_shift.present()) {
      tile.shift[i] = load_row_value(problem.score_shift, tile.b, tile.h, tile.m + i);
    } else if (mean != nullptr) {
      tile.shift[i] = q.score_shift(tile.b, tile.h, tile.m + i, mean);
    } else {
      tile.shift[i] = 0.0f;
    }
  }
}

void load_queries(Tile& tile, const AttentionProblem& problem, const Quantisers& quantisers,
                  const KvHead& kv, AttentionStats& stats) {
  quantisers.q.rows(tile.b, tile.h, tile.m, tile.rows, tile.q_codes.data(), tile.q_descale,
                    stats.q);
  tile.q.decode(tile.q_codes.data(), tile.rows, quantisers.q.format());
  load_shifts(tile, problem, quantisers.q, quantisers.k.mean(kv.b, kv.h));
  // General scores are transformed before the softmax; that takes 0 for 0.
  const bool plain = quantisers.k.granularity() != Granularity::token && problem.softcap == 0;
  tile.zero = plain && quantisers.q.format() == DType::i8 ? kInt8Zero : 0.0f;
  // Folded descales make the sum of codes another one: then FP32 weights are summed instead. P of
  // 16 bits is so close to them that a product with ones would be for nothing.
  tile.sums_codes =
      problem.precision == Precision::fp8 && quantisers.v.granularity() != Granularity::token;
}

/// No key seen yet.
void start(Tile& tile) {
  tile.finite = tile.q.finite;
  std::fill(tile.row_m, tile.row_m + tile.rows, kMinusInfinity);
  std::fill(tile.out.data(), tile.out + tile.rows * tile.v.cols, 0.0f);
  std::fill(tile.sum.data(), tile.sum + tile.rows * simd::kLanes, 0.0f);
  tile.steps_in_acc = 0;
}

/// Key tiles [first, last) of split `split` that any row of the tile sees.
std::pair<std::int64_t, std::int64_t> visited_range(const Tile& tile,
                                                    const AttentionProblem& problem,
                                                    const Mask& mask, std::int64_t split) {
  const auto seen = std::visit(
      [&](const auto& x) { return block_range(x, tile.m, tile.rows, tile.block_n); }, mask);
  const std::int64_t keys = problem.key_lengths[static_cast<std::size_t>(tile.b)];
  const auto own = split_range<std::int64_t>(keys, problem.num_splits, split);
  const std::int64_t tiles = kBlockN / tile.block_n;  // of a tile of split_range
  return {std::max(seen.first, own.first * tiles), std::min(seen.second, own.second * tiles)};
}

/// O and LSE of the tile's rows over the keys of one split.
void attend_split(Tile& tile, const AttentionProblem& problem, const Quantisers& quantisers,
                  const KvHead& kv, std::int64_t split, AttentionStats& stats) {
  start(tile);
  const PvStep pv_step{quantisers.v.format(), problem.accumulator, problem.promote_every};
  const Mask mask = problem.mask_of(kv.b);
  const auto [first, last] = visited_range(tile, problem, mask, split);
  // From the last block to the first: an early attention sink meets P of the other keys already
  // summed at full precision instead of pushing them under E4M3's smallest value.
  for (std::int64_t key_tile = last - 1; key_tile >= first; --key_tile) {
    const std::int64_t n = key_tile * tile.block_n;
    qk(tile, kv, key_tile, quantisers.k.format(), problem.accumulator);
    softmax(tile,
            {mask, n, kv.k_descale.data() + n, quantisers.k.granularity() == Granularity::token,
             score_scale(problem.sm_scale, problem.softcap), problem.softmax,
             problem.precision == Precision::fp8 ? 0.0f : kMaximumSlack});
    requantise_p(
        tile,
        {mask, n, kv.v_descale.data() + n, quantisers.v.granularity() == Granularity::token,
         problem.softmax, problem.p_format()},
        stats.p);
    pv(tile, kv, key_tile, pv_step);
  }
  if (tile.steps_in_acc > 0) promote(tile);
  epilogue(tile, problem);
}

/// [rows][cols] codes of `bytes` bytes each to [cols][rows].
void transpose(const std::uint8_t* codes, std::int64_t rows, std::int64_t cols, std::int64_t bytes,
               std::uint8_t* out) {
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(codes + (r * cols + c) * bytes, bytes, out + (c * rows + r) * bytes);
    }
  }
}

}  // namespace

void load_key_tile(KvHead& kv, const Quantisers& quantisers, std::int64_t key_tile,
                   AttentionStats& stats) {
  const std::int64_t n = key_tile * kv.block_n;
  const std::int64_t d = quantisers.k.padded_d(), k_bytes = quantisers.k.code_bytes();
  const std::int64_t v_row_bytes = quantisers.v.padded_d() * quantisers.v.code_bytes();
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(kv.block_n * d * k_bytes));
  quantisers.k.rows(kv.b, kv.h, n, kv.block_n, rows.data(), kv.k_descale.data() + n, stats.k);
  transpose(rows.data(), kv.block_n, d, k_bytes, kv.k.data() + n * d * k_bytes);
  quantisers.v.rows(kv.b, kv.h, n, kv.block_n, kv.v.data() + n * v_row_bytes,
                    kv.v_descale.data() + n, stats.v);
}

void attend(Tile& tile, const AttentionProblem& problem, const Quantisers& quantisers,
            const KvHead& kv, std::int64_t h, std::int64_t m, AttentionStats& stats) {
  tile.b = kv.b;
  tile.h = h;
  tile.m = m;
  tile.rows = std::min<std::int64_t>(kBlockM, problem.dims.sq - m);
  load_queries(tile, problem, quantisers, kv, stats);
  const std::int64_t splits = problem.num_splits;
  if (splits > 1) allocate(tile.splits, splits, tile.v.cols);
  for (std::int64_t split = 0; split < splits; ++split) {
    attend_split(tile, problem, quantisers, kv, split, stats);
    if (splits > 1) keep(tile.splits, split, tile);
  }
  if (splits > 1) merge(tile, tile.splits);
  store(tile, problem);
}

}  // namespace octavo::emulate
