// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "core/hadamard.h"
#include "core/half.h"
#include "core/tile_table.h"
#include "support/random.h"
#include "support/tensor_core_sum.h"

namespace octavo {
namespace {

/// The rotation from its definition: H[i][j] = (-1)^popcount(i & j), in double.
std::vector<double> by_definition(const std::vector<float>& x, int d, const SignBits& signs) {
  const int n = hadamard_size(d);
  std::vector<double> y(x.size());
  for (int i = 0; i < d; ++i) {
    for (int j = 0; j < n; ++j) {
      const int from = i / n * n + j;
      const double sign = (std::popcount(static_cast<unsigned>((i % n) & j)) % 2 ? -1.0 : 1.0) *
                          (signs.negative(from) ? -1.0 : 1.0);
      y[static_cast<std::size_t>(i)] += sign * x[static_cast<std::size_t>(from)];
    }
  }
  return y;
}

std::vector<float> ramp(int d, std::uint64_t seed) {
  std::vector<float> x(static_cast<std::size_t>(d));
  for (auto& value : x)
    value = static_cast<float>(static_cast<double>(split_mix(seed) >> 40) * 0x1p-23 - 1.0);
  return x;
}

class Hadamard : public ::testing::TestWithParam<int> {};

TEST_P(Hadamard, EqualsItsDefinition) {
  const int d = GetParam();
  const SignBits signs(1234);
  std::vector<float> x = ramp(d, 1);
  const std::vector<double> expected = by_definition(x, d, signs);
  rotate_row(x.data(), d, signs, DType::f32);
  for (int c = 0; c < d; ++c) {
    // Two parts of 8 bits leave 2^-18 of numbers below 1.
    EXPECT_NEAR(x[static_cast<std::size_t>(c)], expected[static_cast<std::size_t>(c)], 0x1p-18 * d)
        << c;
  }
}

TEST_P(Hadamard, KeepsInnerProductsAndLengthsUpToItsSize) {
  const int d = GetParam();
  const SignBits signs(99);
  std::vector<float> x = ramp(d, 2), y = ramp(d, 3);
  double before = 0, after = 0;
  for (int c = 0; c < d; ++c) before += static_cast<double>(x[c]) * y[c];
  rotate_row(x.data(), d, signs, DType::f32);
  rotate_row(y.data(), d, signs, DType::f32);
  for (int c = 0; c < d; ++c) after += static_cast<double>(x[c]) * y[c];
  EXPECT_NEAR(after / hadamard_size(d), before, 1e-5 * d);
}

TEST_P(Hadamard, SpreadsOneChannelEvenlyOverItsBlock) {
  const int d = GetParam(), n = hadamard_size(d);
  std::vector<float> x(static_cast<std::size_t>(d), 0.0f);
  x[static_cast<std::size_t>(n - 1)] = 100.0f;
  rotate_row(x.data(), d, SignBits(7), DType::f32);
  for (int c = 0; c < d; ++c) {
    EXPECT_NEAR(std::fabs(x[static_cast<std::size_t>(c)]), c < n ? 100.0 : 0.0, 1e-4);
  }
}

TEST_P(Hadamard, SignsComeFromTheSeed) {
  const int d = GetParam();
  std::vector<float> x = ramp(d, 4), y = x, z = x;
  rotate_row(x.data(), d, SignBits(1), DType::bf16);
  rotate_row(y.data(), d, SignBits(1), DType::bf16);
  rotate_row(z.data(), d, SignBits(2), DType::bf16);
  EXPECT_EQ(x, y);
  EXPECT_NE(x, z);
}

/// Steps 2 and 3 of core/hadamard.h, each sum of 16 by its definition.
std::vector<float> by_sums_of_16(std::vector<float> x, int d, const SignBits& signs) {
  const int n = hadamard_size(d), run = n / 8;
  const auto at = [](int c) { return static_cast<std::size_t>(c); };
  for (int c = 0; c < d; ++c) x[at(c)] = signs.negative(c) ? -x[at(c)] : x[at(c)];
  std::vector<float> y(x.size());
  for (int i = 0; i < d; ++i) {
    const int same = i / n * n + (i % run & ~1), own = i % n / run * 2 + i % 2;
    float terms[16];
    for (int k = 0; k < 16; ++k) {
      const float term = x[at(same + k / 2 * run + k % 2)];
      terms[k] = std::popcount(static_cast<unsigned>(own & k)) % 2 != 0 ? -term : term;
    }
    y[at(i)] = test::tensor_core_sum(terms);
  }
  for (int distance = 2; distance < run; distance *= 2) {
    for (int c = 0; c < d; ++c) {
      if ((c % run & distance) != 0) continue;
      const float a = y[at(c)], b = y[at(c + distance)];
      y[at(c)] = a + b, y[at(c + distance)] = a - b;
    }
  }
  return y;
}

TEST_P(Hadamard, SumsAreThoseOfATensorCore) {
  const int d = GetParam();
  const SignBits signs(5);
  test::Random random(static_cast<std::uint64_t>(d));
  int cut = 0;  // rows that plain FP32 sums would make something else of
  for (int trial = 0; trial < 2000; ++trial) {
    // Exponents over 0, 4, .., 60 binary orders; every fourth row at an end of the range.
    const double spread = static_cast<double>(trial % 16) * 4;
    const int middle = trial % 4 != 0 ? 0 : trial % 8 == 0 ? 120 : -130;
    std::vector<float> x(static_cast<std::size_t>(d));
    for (float& value : x) {
      const double scale = std::ldexp(1.0, middle) * std::exp2(-spread * random.uniform());
      value = bf16_to_float(float_to_bf16(static_cast<float>(random.normal() * scale)));
      if (trial % 50 == 49 && random.chance(0.02))
        value = random.chance(0.5) ? INFINITY : -INFINITY;
      if (trial % 100 == 99 && random.chance(0.01)) value = NAN;
    }
    const std::vector<float> expected = by_sums_of_16(x, d, signs);
    const std::vector<double> exact = by_definition(x, d, signs);
    rotate_row(x.data(), d, signs, DType::bf16);
    for (std::size_t c = 0; c < x.size(); ++c) {
      if (std::isnan(expected[c])) {
        ASSERT_TRUE(std::isnan(x[c])) << "trial " << trial << ", channel " << c;
      } else {
        ASSERT_EQ(x[c], expected[c]) << "trial " << trial << ", channel " << c;
      }
      cut += x[c] != static_cast<float>(exact[c]);
    }
  }
  EXPECT_GT(cut, 1000);
}

TEST_P(Hadamard, RoundsToTheTypeAndTakesFp32InParts) {
  const int d = GetParam();
  const SignBits signs(6);
  std::vector<float> x = ramp(d, 8), rounded = x;
  for (std::size_t c = 0; c < x.size(); ++c) {
    rounded[c] = bf16_to_float(float_to_bf16(x[c]));
  }
  std::vector<float> in_bf16 = x, in_f32 = x, in_f16 = x, f16 = x;
  rotate_row(in_bf16.data(), d, signs, DType::bf16);
  EXPECT_EQ(in_bf16, by_sums_of_16(rounded, d, signs));
  for (float& value : f16) value = f16_to_float(float_to_f16(value));
  rotate_row(in_f16.data(), d, signs, DType::f16);
  EXPECT_EQ(in_f16, by_sums_of_16(f16, d, signs));
  rotate_row(in_f32.data(), d, signs, DType::f32);
  const std::vector<double> exact = by_definition(x, d, signs);
  double error = 0, error_in_bf16 = 0;
  for (std::size_t c = 0; c < x.size(); ++c) {
    error = std::max(error, std::fabs(in_f32[c] - exact[c]));
    error_in_bf16 = std::max(error_in_bf16, std::fabs(in_bf16[c] - exact[c]));
  }
  EXPECT_LT(error, error_in_bf16 / 100);
}

INSTANTIATE_TEST_SUITE_P(HeadDims, Hadamard, ::testing::ValuesIn(kHeadDims));

TEST(HadamardSize, IsTheLargestPowerOfTwoThatDivides) {
  EXPECT_EQ(hadamard_size(64), 64);
  EXPECT_EQ(hadamard_size(96), 32);
  EXPECT_EQ(hadamard_size(128), 128);
  EXPECT_EQ(hadamard_size(192), 64);
  EXPECT_EQ(hadamard_size(256), 256);
}

TEST(HadamardNorm, IsOneOverTheSquareRootRounded) {
  for (int n : {32, 64, 128, 256}) {
    EXPECT_EQ(hadamard_norm(n), static_cast<float>(1.0 / std::sqrt(n))) << n;
  }
}

// The signs are part of the format: files quantised by one version are read by another.
TEST(HadamardSigns, AreTheDocumentedOnes) {
  const SignBits signs(0x0c7a40);
  std::uint64_t state = 0x0c7a40;
  for (std::uint64_t word : signs.word) EXPECT_EQ(word, split_mix(state));
  std::uint64_t zero = 0;
  EXPECT_EQ(split_mix(zero), 0xe220a8397b1dcdafull);  // SplitMix64's published first output
}

}  // namespace
}  // namespace octavo
