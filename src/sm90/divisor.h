// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace octavo::sm90 {

/// Division of 0 <= n < 2^31 by a number known at launch, as a multiplication: n m >> p with
/// p = 31 + ceil(log2 d), m = ceil(2^p / d) (Granlund and Montgomery 1994, theorem 4.2).
class Divisor {
 public:
  Divisor() = default;
  /// 0, the extent of an empty tensor, divides nothing: it counts as 1.
  constexpr explicit Divisor(int d)
      : divisor_(std::max(d, 1)),
        shift_(31 + static_cast<int>(std::bit_width(static_cast<unsigned>(divisor_) - 1))) {
    const std::uint64_t power = std::uint64_t{1} << shift_, by = static_cast<unsigned>(divisor_);
    multiplier_ = static_cast<std::uint32_t>((power + by - 1) / by);
  }

  constexpr int value() const { return divisor_; }
  constexpr int quotient(int n) const {
    return static_cast<int>(std::uint64_t{static_cast<unsigned>(n)} * multiplier_ >> shift_);
  }
  constexpr int remainder(int n, int quotient) const { return n - quotient * divisor_; }

 private:
  int divisor_ = 1, shift_ = 31;
  std::uint32_t multiplier_ = std::uint32_t{1} << 31;
};

}  // namespace octavo::sm90
