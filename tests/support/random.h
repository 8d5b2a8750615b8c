// SPDX-License-Identifier: Apache-2.0
// Seeded random numbers and the distributions of operands that tests draw from.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "support/tensor.h"

namespace octavo::test {

/// SplitMix64 (Steele, Lea, Flood 2014). The seed is mixed before it becomes the state: states one
/// step apart would be one sequence, shifted.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix(mix(seed + kStep))) {}

  std::uint64_t bits() {
    state_ += kStep;
    return mix(state_);
  }

  /// In (0, 1).
  double uniform() { return (static_cast<double>(bits() >> 12) + 0.5) * 0x1p-52; }

  /// N(0, 1), by Box and Muller (1958).
  float normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return static_cast<float>(radius * std::cos(2 * std::numbers::pi * uniform()));
  }

  bool chance(double probability) { return uniform() < probability; }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ull;

  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

inline std::vector<float> normal_values(std::int64_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& x : values) x = random.normal();
  return values;
}

/// N(0, 1) + N(0, 100) Bernoulli(0.001), 100 being the variance: Shah et al. 2024
/// (FlashAttention-3), section 4.3.
inline std::vector<float> outlier_values(std::int64_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& x : values) {
    x = random.normal();
    if (random.chance(0.001)) x += 10.0f * random.normal();
  }
  return values;
}

/// A tensor of N(0, 1) times `scale`.
inline Tensor normal_tensor(DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed,
                            float scale = 1.0f) {
  Tensor x(dtype, std::move(shape));
  Random random(seed);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.set(i, scale * random.normal());
  return x;
}

/// Multiplies rows [first, last) of every head of a [b, s, h, d] tensor.
inline void scale_rows(Tensor& x, std::int64_t first, std::int64_t last, float factor) {
  for (std::int64_t b = 0; b < x.extent(0); ++b) {
    for (std::int64_t s = first; s < last; ++s) {
      for (std::int64_t i = 0; i < x.extent(2) * x.extent(3); ++i) {
        const std::int64_t at = x.at(b, s, 0, 0) + i;
        x.set(at, x.get(at) * factor);
      }
    }
  }
}

}  // namespace octavo::test
