// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "core/hadamard.h"
#include "core/tile_table.h"

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

void rotate_row(float* x, int padded_d, const SignBits& signs) {
  apply_signs(x, padded_d, signs);
  hadamard_row(x, padded_d);
}

class Hadamard : public ::testing::TestWithParam<int> {};

TEST_P(Hadamard, EqualsItsDefinition) {
  const int d = GetParam();
  const SignBits signs(1234);
  std::vector<float> x = ramp(d, 1);
  const std::vector<double> expected = by_definition(x, d, signs);
  rotate_row(x.data(), d, signs);
  for (int c = 0; c < d; ++c) {
    EXPECT_NEAR(x[static_cast<std::size_t>(c)], expected[static_cast<std::size_t>(c)], 2e-5) << c;
  }
}

TEST_P(Hadamard, KeepsInnerProductsAndLengthsUpToItsSize) {
  const int d = GetParam();
  const SignBits signs(99);
  std::vector<float> x = ramp(d, 2), y = ramp(d, 3);
  double before = 0, after = 0;
  for (int c = 0; c < d; ++c) before += static_cast<double>(x[c]) * y[c];
  rotate_row(x.data(), d, signs);
  rotate_row(y.data(), d, signs);
  for (int c = 0; c < d; ++c) after += static_cast<double>(x[c]) * y[c];
  EXPECT_NEAR(after / hadamard_size(d), before, 1e-5 * d);
}

TEST_P(Hadamard, SpreadsOneChannelEvenlyOverItsBlock) {
  const int d = GetParam(), n = hadamard_size(d);
  std::vector<float> x(static_cast<std::size_t>(d), 0.0f);
  x[static_cast<std::size_t>(n - 1)] = 100.0f;
  rotate_row(x.data(), d, SignBits(7));
  for (int c = 0; c < d; ++c) {
    EXPECT_NEAR(std::fabs(x[static_cast<std::size_t>(c)]), c < n ? 100.0 : 0.0, 1e-4);
  }
}

TEST_P(Hadamard, SignsComeFromTheSeed) {
  const int d = GetParam();
  std::vector<float> x = ramp(d, 4), y = x, z = x;
  rotate_row(x.data(), d, SignBits(1));
  rotate_row(y.data(), d, SignBits(1));
  rotate_row(z.data(), d, SignBits(2));
  EXPECT_EQ(x, y);
  EXPECT_NE(x, z);
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
