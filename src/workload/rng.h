// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every platform and in any order.
//
// Number i of a stream is a hash of (seed, stream, i): SplitMix64 (Steele, Lea, Flood 2014) read at
// position i. Normal deviates by Box and Muller (1958). The C++ library's distributions, log and
// cos differ between implementations, so all three are spelled out in additions, products and
// divisions, which IEEE 754 fixes to the bit.
#pragma once

#include <cmath>
#include <cstdint>

namespace octavo::workload {

/// Natural logarithm of x in (0, 1], to about 1e-15.
inline double portable_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact; m in [1/2, 1)
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // log m = 2 atanh(s), |s| <= 0.1716: s^21 / 21 is below 1e-17.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double series = 0;
  for (int n = 19; n >= 1; n -= 2) series = series * s2 + 1.0 / n;
  return 2 * s * series + exponent * 0.69314718055994531;
}

/// cos(2 pi turn) for turn in [0, 1), to about 1e-15.
inline double portable_cos_turn(double turn) {
  const double quarters = turn * 4;
  const int quadrant = static_cast<int>(quarters);
  // cos(q pi/2 + x) is cos x, -sin x, -cos x, sin x for q = 0, 1, 2, 3; x in [0, pi/2).
  const double x = (quarters - quadrant) * 1.5707963267948966;
  const bool sine = quadrant % 2 == 1;
  double series = 0;  // Taylor to x^22 or x^23, Horner in x^2
  for (int n = sine ? 23 : 22; n >= 2; n -= 2) series = -(series + 1) * x * x / (n * (n - 1));
  const double value = (series + 1) * (sine ? x : 1.0);
  return (quadrant == 1 || quadrant == 2) ? -value : value;
}

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream)
      : start_(mix(mix(seed + kStep) ^ (stream * kStep))) {}

  std::uint64_t bits(std::uint64_t i) const { return mix(start_ + (i + 1) * kStep); }

  /// In (0, 1), never 0 or 1.
  double uniform(std::uint64_t i) const {
    return (static_cast<double>(bits(i) >> 12) + 0.5) * 0x1p-52;
  }

  /// N(0, 1); the largest magnitude that can come out is 6.8.
  double normal(std::uint64_t i) const {
    const std::uint64_t word = bits(i);
    const double u = (static_cast<double>(word >> 32) + 0.5) * 0x1p-32;
    const double turn = static_cast<double>(word & 0xffffffffu) * 0x1p-32;
    return std::sqrt(-2 * portable_log(u)) * portable_cos_turn(turn);
  }

  /// A whole number in [low, high], each about equally likely.
  std::int64_t whole(std::uint64_t i, std::int64_t low, std::int64_t high) const {
    return low + static_cast<std::int64_t>(bits(i) % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ull;  // 2^64 / golden ratio

  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  std::uint64_t start_;
};

}  // namespace octavo::workload
