// SPDX-License-Identifier: Apache-2.0
#include "workload/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "octavo/error.h"
#include "workload/tensor.h"

namespace octavo::workload {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sums over one row or over all.
struct Sums {
  double got2 = 0, want2 = 0, dot = 0, error2 = 0;

  void add(double got, double want) {
    got2 += got * got;
    want2 += want * want;
    dot += got * want;
    error2 += (got - want) * (got - want);
  }
  void add(const Sums& other) {
    got2 += other.got2;
    want2 += other.want2;
    dot += other.dot;
    error2 += other.error2;
  }
  double cosine() const {
    if (got2 == 0 && want2 == 0) return 1;
    if (got2 == 0 || want2 == 0) return 0;
    return std::clamp(dot / (std::sqrt(got2) * std::sqrt(want2)), -1.0, 1.0);
  }
};

bool same_shape(const TensorView& a, const TensorView& b) {
  return a.rank == b.rank && std::equal(a.shape.begin(), a.shape.begin() + a.rank, b.shape.begin());
}

std::string shape_text(const TensorView& x) {
  std::string text = "[";
  for (int i = 0; i < x.rank; ++i) text += (i ? ", " : "") + std::to_string(x.shape[i]);
  return text + "]";
}

// Counts what is not finite. True where both values are.
bool count_specials(float got, float want, Metrics& m) {
  m.nan += std::isnan(got);
  m.nan_want += std::isnan(want);
  m.inf += std::isinf(got);
  m.inf_want += std::isinf(want);
  if (std::isfinite(got) && std::isfinite(want)) return true;
  if (std::isnan(got) != std::isnan(want)) m.masks_agree = false;
  if (!std::isnan(got) && !std::isnan(want) && got != want) m.masks_agree = false;
  return false;
}

void finish(const Sums& sums, std::int64_t finite, Metrics& m) {
  m.rmse = finite > 0 ? std::sqrt(sums.error2 / static_cast<double>(finite)) : 0;
  m.cosine = sums.cosine();
  if (sums.error2 == 0) {
    m.snr_db = kInfinity;
    return;
  }
  m.relative_l2 = sums.want2 > 0 ? std::sqrt(sums.error2 / sums.want2) : kInfinity;
  m.snr_db = sums.want2 > 0 ? 10 * std::log10(sums.want2 / sums.error2) : -kInfinity;
}

}  // namespace

Metrics compare(const TensorView& got, const TensorView& want) {
  if (!same_shape(got, want) || got.rank < 1) {
    throw Error(ErrorCode::invalid_argument, "compare: got.shape is " + shape_text(got) +
                                                 "; must equal want.shape, " + shape_text(want));
  }
  Metrics m;
  m.count = got.numel();
  if (m.count == 0) return m;
  const std::int64_t n = got.shape[got.rank - 1];
  std::vector<float> got_row(static_cast<std::size_t>(n)), want_row(got_row.size());
  Sums all;
  std::int64_t finite = 0, zeros = 0, zeros_want = 0;
  for (std::int64_t row = 0; row < row_count(got); ++row) {
    load_row(got, row, got_row);
    load_row(want, row, want_row);
    Sums sums;
    for (std::size_t i = 0; i < got_row.size(); ++i) {
      const float g = got_row[i], w = want_row[i];
      zeros += g == 0;
      zeros_want += w == 0;
      if (!count_specials(g, w, m)) continue;
      ++finite;
      sums.add(double{g}, double{w});
      m.max_abs = std::max(m.max_abs, std::abs(double{g} - double{w}));
    }
    m.worst_row_cosine = std::min(m.worst_row_cosine, sums.cosine());
    all.add(sums);
  }
  m.zeros = static_cast<double>(zeros) / static_cast<double>(m.count);
  m.zeros_want = static_cast<double>(zeros_want) / static_cast<double>(m.count);
  finish(all, finite, m);
  return m;
}

bool bit_equal(const TensorView& got, const TensorView& want) {
  if (!same_shape(got, want) || got.dtype != want.dtype) return false;
  if (got.numel() == 0) return true;
  Tensor a = copy_of(got);
  Tensor b = copy_of(want);
  return a.bytes == b.bytes;
}

}  // namespace octavo::workload
