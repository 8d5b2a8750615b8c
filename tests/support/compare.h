// SPDX-License-Identifier: Apache-2.0
// How far an output is from the one wanted, and the comparison that holds FP8 against double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "support/tensor.h"

namespace octavo::test {

struct Difference {
  double relative_l2 = 0;   ///< |got - want| / |want|
  double rmse = 0;          ///< sqrt(mean (got - want)^2)
  double max_abs = 0;       ///< max |got - want|
  double cosine = 0;        ///< got . want / (|got| |want|)
  double row_relative = 0;  ///< root mean square over rows of |got - want| / |want|
  double worst_row = 0;     ///< the largest |got - want| / |want| of a row
  bool masks_agree = true;  ///< NaN and infinities at the same places, infinities with their signs
};

/// Whether both are the same kind of number: finite, NaN, or the same infinity.
inline bool same_kind(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return true;
}

/// 0 / 0 counts as 0: nothing wanted, nothing there.
inline double ratio(double error, double size) {
  if (error == 0) return 0;
  return size > 0 ? error / size : std::numeric_limits<double>::infinity();
}

/// Figures over elements that are finite in both; `row` elements make a row.
inline Difference difference(std::span<const float> got, std::span<const float> want,
                             std::int64_t row) {
  Difference x;
  double error = 0, size = 0, got_size = 0, dot = 0, rows = 0;
  const auto width = static_cast<std::size_t>(row);
  x.masks_agree = got.size() == want.size();
  for (std::size_t first = 0; first + width <= std::min(got.size(), want.size()); first += width) {
    double row_error = 0, row_size = 0;
    for (std::size_t i = first; i < first + width; ++i) {
      x.masks_agree &= same_kind(got[i], want[i]);
      if (!std::isfinite(got[i]) || !std::isfinite(want[i])) continue;
      const double a = static_cast<double>(got[i]), b = static_cast<double>(want[i]);
      row_error += (a - b) * (a - b);
      row_size += b * b;
      got_size += a * a;
      dot += a * b;
      x.max_abs = std::max(x.max_abs, std::fabs(a - b));
    }
    const double relative = ratio(std::sqrt(row_error), std::sqrt(row_size));
    x.worst_row = std::max(x.worst_row, relative);
    x.row_relative += relative * relative;
    error += row_error;
    size += row_size;
    rows += 1;
  }
  x.relative_l2 = ratio(std::sqrt(error), std::sqrt(size));
  x.rmse = got.empty() ? 0 : std::sqrt(error / static_cast<double>(got.size()));
  x.cosine = size > 0 && got_size > 0 ? dot / std::sqrt(size * got_size) : (size == got_size);
  x.row_relative = rows > 0 ? std::sqrt(x.row_relative / rows) : 0;
  return x;
}

inline Difference difference(const Tensor& got, const Tensor& want) {
  return difference(got.values(), want.values(), want.shape().empty() ? 1 : want.shape().back());
}

/// What an FP8 output must satisfy against double precision. Two-sided: an output closer than E4M3
/// can be was not computed in FP8.
struct Bounds {
  double low = 0, high = 0;  ///< of relative_l2
  double worst_row = std::numeric_limits<double>::infinity();
};

/// A measured figure with a margin on both sides.
constexpr Bounds around(double measured, double margin) {
  return {measured * (1 - margin), measured * (1 + margin)};
}

inline testing::AssertionResult in_bounds(const Difference& x, const Bounds& bounds) {
  if (!x.masks_agree) return testing::AssertionFailure() << "NaN or infinities differ";
  if (!(x.relative_l2 >= bounds.low && x.relative_l2 <= bounds.high)) {
    return testing::AssertionFailure() << "relative L2 is " << x.relative_l2 << "; must be from "
                                       << bounds.low << " to " << bounds.high;
  }
  if (!(x.worst_row <= bounds.worst_row)) {
    return testing::AssertionFailure()
           << "the worst row is off by " << x.worst_row << "; must be at most " << bounds.worst_row;
  }
  return testing::AssertionSuccess();
}

inline testing::AssertionResult agrees(const Tensor& got, const Tensor& want,
                                       const Bounds& bounds) {
  if (got.shape() != want.shape()) return testing::AssertionFailure() << "shapes differ";
  return in_bounds(difference(got, want), bounds);
}

/// Log-sum-exps: infinities exact, the rest within `tolerance` (absolute: a factor of the sum).
inline testing::AssertionResult lse_agrees(const Tensor& got, const Tensor& want,
                                           double tolerance) {
  if (got.shape() != want.shape()) return testing::AssertionFailure() << "shapes differ";
  const Difference x = difference(got, want);
  if (!x.masks_agree) return testing::AssertionFailure() << "NaN or infinities differ";
  if (x.max_abs <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "the largest difference is " << x.max_abs << "; must be at most " << tolerance;
}

/// The same bits, with the first difference in words.
inline testing::AssertionResult identical(const Tensor& got, const Tensor& want) {
  if (same_bits(got, want)) return testing::AssertionSuccess();
  if (got.dtype() != want.dtype() || got.shape() != want.shape()) {
    return testing::AssertionFailure() << "dtypes or shapes differ";
  }
  const std::size_t size = size_of(got.dtype());
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(got.bytes().data() + at, want.bytes().data() + at, size) == 0) continue;
    return testing::AssertionFailure()
           << "element " << i << " is " << got.get(i) << "; must be " << want.get(i);
  }
  return testing::AssertionFailure() << "bytes differ";
}

inline bool all_finite(const Tensor& x) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (!std::isfinite(x.get(i))) return false;
  }
  return true;
}

inline bool all_equal(const Tensor& x, float value) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (x.get(i) != value) return false;
  }
  return true;
}

}  // namespace octavo::test
