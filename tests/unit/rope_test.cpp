// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding inside the call equals inputs that were turned beforehand.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/hadamard.h"
#include "core/half.h"
#include "core/rope.h"
#include "octavo/attention.h"

namespace octavo {
namespace {

constexpr std::int64_t kB = 2, kSq = 40, kSk = 150, kHq = 4, kHkv = 2, kD = 80, kPositions = 200;

std::vector<float> uniform(std::int64_t n, std::uint64_t seed) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (auto& value : x) {
    value = static_cast<float>(static_cast<double>(split_mix(seed) >> 11) * 0x1p-52 - 1.0);
  }
  return x;
}

struct Tables {
  explicit Tables(std::int64_t half_) : half(half_) {
    for (std::int64_t p = 0; p < kPositions; ++p) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) *
                             std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half));
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
  Rope rope(RopeStyle style, std::int64_t q_offset, std::int64_t k_offset) {
    return {contiguous(cos.data(), DType::f32, {kPositions, half}),
            contiguous(sin.data(), DType::f32, {kPositions, half}), style, q_offset, k_offset};
  }
  std::int64_t half;
  std::vector<float> cos, sin;
};

/// Turns every row of [b, s, h, d] by the formula, pair by pair, without rope_row.
void turn(std::vector<float>& x, std::int64_t s, std::int64_t h, const Tables& t, RopeStyle style,
          std::int64_t offset) {
  for (std::int64_t row = 0; row < kB * s * h; ++row) {
    const std::int64_t position = row / h % s + offset;
    float* y = x.data() + row * kD;
    for (std::int64_t i = 0; i < t.half; ++i) {
      const std::int64_t a = style == RopeStyle::interleaved ? 2 * i : i;
      const std::int64_t b = style == RopeStyle::interleaved ? 2 * i + 1 : i + t.half;
      const float c = t.cos[static_cast<std::size_t>(position * t.half + i)];
      const float n = t.sin[static_cast<std::size_t>(position * t.half + i)];
      const float y1 = y[a], y2 = y[b];
      y[a] = std::fma(y1, c, -(y2 * n));
      y[b] = std::fma(y2, c, y1 * n);
    }
  }
}

struct Output {
  std::vector<float> out, lse;
};

Output attend(std::vector<float>& q, std::vector<float>& k, std::vector<float>& v,
              const std::optional<Rope>& rope, const char* engine) {
  Output r{std::vector<float>(q.size(), NAN), std::vector<float>(kB * kHq * kSq, NAN)};
  AttentionParams p;
  p.q = contiguous(q.data(), DType::f32, {kB, kSq, kHq, kD});
  p.k = contiguous(k.data(), DType::f32, {kB, kSk, kHkv, kD});
  p.v = contiguous(v.data(), DType::f32, {kB, kSk, kHkv, kD});
  p.out = contiguous(r.out.data(), DType::f32, {kB, kSq, kHq, kD});
  p.lse = contiguous(r.lse.data(), DType::f32, {kB, kHq, kSq});
  p.rope = rope;
  p.mask = MaskSpec::causal();
  p.engine = engine;
  attention_forward(p);
  return r;
}

struct Case {
  RopeStyle style;
  std::int64_t half;
};

class RopeTest : public ::testing::TestWithParam<Case> {};

TEST_P(RopeTest, InsideTheCallEqualsTurnedInputs) {
  const auto [style, half] = GetParam();
  Tables tables(half);
  std::vector<float> q = uniform(kB * kSq * kHq * kD, 1), k = uniform(kB * kSk * kHkv * kD, 2),
                     v = uniform(kB * kSk * kHkv * kD, 3);
  const Rope rope = tables.rope(style, 110, 3);
  const Output inside = attend(q, k, v, rope, "emulate");
  const Output reference = attend(q, k, v, rope, "reference");
  const Output without = attend(q, k, v, std::nullopt, "emulate");
  turn(q, kSq, kHq, tables, style, 110);
  turn(k, kSk, kHkv, tables, style, 3);
  const Output before = attend(q, k, v, std::nullopt, "emulate");
  const Output reference_before = attend(q, k, v, std::nullopt, "reference");
  EXPECT_EQ(inside.out, before.out);
  EXPECT_EQ(inside.lse, before.lse);
  EXPECT_NE(inside.out, without.out) << "the embedding does something";
  for (std::size_t i = 0; i < reference.out.size(); ++i) {
    ASSERT_NEAR(reference.out[i], reference_before.out[i], 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, RopeTest,
                         ::testing::Values(Case{RopeStyle::interleaved, 40},
                                           Case{RopeStyle::half_split, 40},
                                           Case{RopeStyle::interleaved, 16},   // partial
                                           Case{RopeStyle::half_split, 16}));  // partial

TEST(Rope, TablesMayBeSixteenBit) {
  Tables tables(40);
  std::vector<float> q = uniform(kB * kSq * kHq * kD, 1), k = uniform(kB * kSk * kHkv * kD, 2),
                     v = uniform(kB * kSk * kHkv * kD, 3);
  std::vector<std::uint16_t> cos16, sin16;
  for (std::size_t i = 0; i < tables.cos.size(); ++i) {
    cos16.push_back(float_to_bf16(tables.cos[i]));
    sin16.push_back(float_to_bf16(tables.sin[i]));
    tables.cos[i] = bf16_to_float(cos16.back());
    tables.sin[i] = bf16_to_float(sin16.back());
  }
  Rope rope16 = tables.rope(RopeStyle::half_split, 0, 0);
  rope16.cos = contiguous(cos16.data(), DType::bf16, {kPositions, 40});
  rope16.sin = contiguous(sin16.data(), DType::bf16, {kPositions, 40});
  const Output a = attend(q, k, v, rope16, "emulate");
  const Output b = attend(q, k, v, tables.rope(RopeStyle::half_split, 0, 0), "emulate");
  EXPECT_EQ(a.out, b.out);
}

}  // namespace
}  // namespace octavo
