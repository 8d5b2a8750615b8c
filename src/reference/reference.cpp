// SPDX-License-Identifier: Apache-2.0
//   S = sm_scale Q K^T, softcap: c tanh(S / c), mask     P = exp(S - max S)     O = P V / sum P
//   LSE = max S + log(sum P)                             all in double, one query row at a time
#include "reference/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <variant>

#include "core/load.h"
#include "core/parallel.h"
#include "core/rope.h"

namespace octavo::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Matrix = std::vector<double>;

/// Rotary position embedding of one row (core/rope.h) in double.
void embed(const Rope& rope, std::int64_t position, double* x) {
  const std::int64_t half = rope.cos.shape[1];
  std::vector<float> cos(static_cast<std::size_t>(half)), sin(cos.size());
  load_table_row(rope.cos, position, cos.data());
  load_table_row(rope.sin, position, sin.data());
  for (std::int64_t i = 0; i < half; ++i) {
    const Pair at = rope_pair(rope.style, i, half);
    const double x1 = x[at.first], x2 = x[at.second];
    x[at.first] = x1 * cos[i] - x2 * sin[i];
    x[at.second] = x2 * cos[i] + x1 * sin[i];
  }
}

/// Row s of (b, h), dequantised, with its position embedding where there is one.
void load_row(const Operand& operand, std::int64_t b, std::int64_t h, std::int64_t s,
              const std::optional<Rope>& rope, std::int64_t offset, double* out) {
  const std::byte* row = row_pointer(operand.x, b, s, h);
  const double descale = operand.quantised() ? operand.descale.at(b, h, s) : 1.0;
  for (std::int64_t c = 0; c < operand.x.shape[3]; ++c) {
    out[c] = load_element(row, operand.x.dtype, c) * descale;
  }
  if (rope) embed(*rope, offset + s, out);
}

/// Rows of one (batch, head); transposed to [d][rows] where asked.
Matrix load_head(const Operand& operand, std::int64_t b, std::int64_t h, std::int64_t rows,
                 bool transpose, const std::optional<Rope>& rope) {
  const std::int64_t d = operand.x.shape[3];
  Matrix out(static_cast<std::size_t>(rows * d)), row(static_cast<std::size_t>(d));
  for (std::int64_t s = 0; s < rows; ++s) {
    load_row(operand, b, h, s, rope, rope ? rope->k_offset : 0, row.data());
    for (std::int64_t c = 0; c < d; ++c) {
      out[static_cast<std::size_t>(transpose ? c * rows + s : s * d + c)] =
          row[static_cast<std::size_t>(c)];
    }
  }
  return out;
}

/// Scores of one query row against the keys it sees; the rest of `s` is left alone.
void score_row(const AttentionProblem& p, const std::vector<double>& q, double shift,
               const Matrix& k_t, std::int64_t sk, KeyRange keys, std::vector<double>& s) {
  for (std::int64_t j = keys.begin; j < keys.end; ++j) s[j] = shift;
  for (std::size_t c = 0; c < q.size(); ++c) {
    const double* k = k_t.data() + static_cast<std::int64_t>(c) * sk;
    for (std::int64_t j = keys.begin; j < keys.end; ++j) s[j] += q[c] * k[j];
  }
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    s[j] *= p.sm_scale;
    if (p.softcap > 0) s[j] = p.softcap * std::tanh(s[j] / p.softcap);
  }
}

/// Softmax of the visible scores and their sum with V; returns the LSE.
double attend_row(std::vector<double>& s, KeyRange keys, const Matrix& v, std::vector<double>& o) {
  std::fill(o.begin(), o.end(), 0.0);
  double m = -kInfinity, l = 0;
  for (std::int64_t j = keys.begin; j < keys.end; ++j) m = std::fmax(m, s[j]);
  if (m == -kInfinity) m = 0;
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    const double weight = std::exp(s[j] - m);
    const double* row = v.data() + j * static_cast<std::int64_t>(o.size());
    l += weight;
    for (std::size_t c = 0; c < o.size(); ++c) o[c] += weight * row[c];
  }
  if (keys.empty()) return -kInfinity;
  for (double& x : o) x /= l;
  return m + std::log(l);
}

void attend_head(const AttentionProblem& p, std::int64_t b, std::int64_t h) {
  const std::int64_t sk = p.key_lengths[static_cast<std::size_t>(b)], h_kv = h / p.dims.group();
  const Matrix k_t = load_head(p.k, b, h_kv, sk, true, p.rope),
               v = load_head(p.v, b, h_kv, sk, false, std::nullopt);
  const Mask mask = p.mask_of(b);
  std::vector<double> q(static_cast<std::size_t>(p.dims.d)), s(static_cast<std::size_t>(sk)),
      o(static_cast<std::size_t>(p.dims.dv));
  for (std::int64_t i = 0; i < p.dims.sq; ++i) {
    load_row(p.q, b, h, i, p.rope, p.rope ? p.rope->q_offset : 0, q.data());
    const KeyRange keys = std::visit([i](const auto& m) { return m.row(i); }, mask);
    const double shift = p.score_shift.present() ? load_row_value(p.score_shift, b, h, i) : 0.0;
    score_row(p, q, shift, k_t, sk, keys, s);
    const double lse = attend_row(s, keys, v, o);
    for (std::size_t c = 0; c < o.size(); ++c) {
      store_element(row_pointer(p.out, b, i, h), p.out.dtype, static_cast<std::int64_t>(c),
                    static_cast<float>(o[c]));
    }
    if (p.lse.present()) store_row_value(p.lse, b, h, i, static_cast<float>(lse));
  }
}

std::string why_unsupported(const AttentionProblem& p) {
  return p.q.x.device.kind == Device::Kind::cpu ? "" : "tensors are not in host memory";
}

AttentionStats run(const AttentionProblem& p) {
  std::atomic<std::int64_t> done{0};
  const std::int64_t heads = p.dims.b * p.dims.hq;
  parallel_for(heads, p.threads, [&](std::int64_t i, int) {
    attend_head(p, i / p.dims.hq, i % p.dims.hq);
    if (p.progress) p.progress(static_cast<double>(++done) / static_cast<double>(heads));
  });
  AttentionStats stats;
  stats.engine = kEngine.name;
  return stats;
}

}  // namespace

const Engine kEngine{"reference", "double precision on the CPU, no FP8; runs only by name", false,
                     why_unsupported, run};

}  // namespace octavo::reference
