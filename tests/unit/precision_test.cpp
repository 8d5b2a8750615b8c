// SPDX-License-Identifier: Apache-2.0
// Precision bf16 and fp16: Q, K and V as they are, P rounded to the same type, sums in FP32.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "emulate/simd/stages.h"
#include "support/call.h"
#include "support/compare.h"

namespace octavo::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// What a precision costs on operands that have its type. All of it is the rounding of P: a weight
/// errs by up to 2^-8 of itself in BF16 and 2^-11 in FP16, 0.42 of that in the mean square, and the
/// largest of a key tile not at all. Measured below: 0.11 % to 0.15 % and 0.013 % to 0.02 %.
struct Cost {
  Precision precision;
  DType dtype;
  Bounds bounds;
  double lse;  ///< FP32 sums of FP32 weights
};
constexpr Cost kBf16 = {Precision::bf16, DType::bf16, {0.0010, 0.0022, 0.006}, 1e-5};
constexpr Cost kFp16 = {Precision::fp16, DType::f16, {0.00012, 0.00028, 0.0008}, 1e-5};

class In16Bits : public testing::TestWithParam<Cost> {
 protected:
  Inputs inputs(const Extents& n, std::uint64_t seed) const {
    return normal_inputs(n, seed, GetParam().dtype);
  }
  AttentionParams settings(Inputs& x) const {
    AttentionParams params = x.params();
    params.precision = GetParam().precision;
    return params;
  }
  /// O and LSE of the emulation against the reference.
  testing::AssertionResult judged(const AttentionParams& params) const {
    const Result got = emulate(params), want = reference(params);
    const testing::AssertionResult lse = lse_agrees(got.lse, want.lse, GetParam().lse);
    return lse ? agrees(got.out, want.out, GetParam().bounds) : lse;
  }
  testing::AssertionResult judged(Inputs& x) const { return judged(settings(x)); }
};

INSTANTIATE_TEST_SUITE_P(Precisions, In16Bits, testing::Values(kBf16, kFp16), [](const auto& x) {
  return std::string(precision_name(x.param.precision));
});

TEST_P(In16Bits, IsOffByTheRoundingOfP) {
  Inputs x = inputs({.b = 2, .sq = 130, .sk = 600, .hq = 4, .hkv = 2}, 201);
  EXPECT_TRUE(judged(x));
}

TEST_P(In16Bits, AnyHeadDim) {
  for (const std::array<std::int64_t, 2>& dims : {std::array<std::int64_t, 2>{8, 8},
                                                  {40, 40},
                                                  {64, 64},
                                                  {80, 80},
                                                  {96, 64},
                                                  {128, 128},
                                                  {192, 128},
                                                  {64, 256},
                                                  {256, 256}}) {
    Inputs x = inputs({.sq = 70, .sk = 333, .d = dims[0], .dv = dims[1]}, 202);
    EXPECT_TRUE(judged(x)) << "d " << dims[0] << ", dv " << dims[1];
  }
}

TEST_P(In16Bits, AnyMask) {
  for (const std::int64_t d : {64, 256}) {
    for (const MaskSpec& mask : {MaskSpec::causal(), MaskSpec::window(100, 0),
                                 MaskSpec::window(7, 150), MaskSpec::window(-1, 40)}) {
      Inputs x = inputs({.sq = 200, .sk = 460, .hq = 2, .d = d, .dv = d}, 203);
      AttentionParams params = settings(x);
      params.mask = mask;
      EXPECT_TRUE(judged(params)) << d << ", window " << mask.left << ", " << mask.right;
    }
  }
}

TEST_P(In16Bits, Softcap) {
  Inputs x = inputs({.sq = 70, .sk = 333, .d = 64, .dv = 64}, 204);
  AttentionParams params = settings(x);
  for (const float softcap : {1.0f, 30.0f}) {
    params.softcap = softcap;
    EXPECT_TRUE(judged(params)) << softcap;
  }
}

/// Rows of sq past sk see no key under a causal mask.
TEST_P(In16Bits, RowsWithoutKeysAreZero) {
  Inputs x = inputs({.sq = 150, .sk = 20, .d = 64, .dv = 64}, 205);
  AttentionParams params = settings(x);
  params.mask = MaskSpec::causal();
  const Result got = emulate(params);
  EXPECT_TRUE(all_equal(rows_of(got.out, 0, 130), 0.0f));
  for (std::int64_t i = 0; i < 130; ++i) EXPECT_EQ(got.lse.get(i), -kInfinity);
  EXPECT_TRUE(lse_agrees(got.lse, reference(params).lse, GetParam().lse));
}

TEST_P(In16Bits, KeysPastTheLengthDoNotMatter) {
  for (const std::int64_t d : {128, 192}) {
    Inputs x = inputs({.b = 3, .sq = 70, .sk = 300, .hq = 2, .d = d, .dv = d}, 206);
    const Inputs clean = x;
    const std::vector<std::int64_t> lengths = {200, 0, 129};
    for (Tensor* operand : {&x.k, &x.v}) {
      for (std::int64_t b = 0; b < 3; ++b) {
        const std::int64_t first = operand->at(b, lengths[static_cast<std::size_t>(b)], 0, 0);
        for (std::int64_t i = first; i < operand->at(b + 1, 0, 0, 0); ++i) operand->set(i, kNan);
      }
    }
    AttentionParams params = settings(x);
    params.key_lengths = lengths;
    const Result got = emulate(params);
    EXPECT_TRUE(judged(params));
    Inputs other = clean;
    AttentionParams without = settings(other);
    without.key_lengths = lengths;
    EXPECT_TRUE(identical(got.out, emulate(without).out));
    EXPECT_TRUE(identical(got.lse, emulate(without).lse));
  }
}

TEST_P(In16Bits, SplitsAreMerged) {
  for (const std::int64_t d : {64, 256}) {
    Inputs x = inputs({.sq = 65, .sk = 700, .d = d, .dv = d}, 207);
    AttentionParams params = settings(x);
    const Result whole = emulate(params);
    for (const int splits : {2, 5, 64}) {
      params.num_splits = splits;
      EXPECT_TRUE(judged(params)) << splits;
      EXPECT_FALSE(same_bits(emulate(params).out, whole.out));
    }
  }
}

/// Hot scores: one weight, 1, carries a row, and rounding P does nothing.
TEST_P(In16Bits, LargeScoresStayExact) {
  Inputs x = inputs({.sq = 70, .sk = 333}, 208);
  AttentionParams params = settings(x);
  params.sm_scale = 100;
  const Result got = emulate(params), want = reference(params);
  EXPECT_TRUE(agrees(got.out, want.out, {0, 2e-3}));
  // Scores of 100 * 40: a last place of FP32 is 2^-12 there.
  EXPECT_TRUE(lse_agrees(got.lse, want.lse, 4e-3));
}

TEST_P(In16Bits, NothingIsCountedAndTheAccumulatorDoesNotApply) {
  Inputs x = inputs({.sq = 70, .sk = 333, .d = 64, .dv = 64}, 209);
  AttentionParams params = settings(x);
  const Result got = emulate(params);
  EXPECT_EQ(got.stats.engine, "emulate");
  for (const CastCounts* counts : {&got.stats.q, &got.stats.k, &got.stats.v, &got.stats.p}) {
    EXPECT_EQ(counts->total, 0);
    EXPECT_EQ(counts->flushed, 0);
    EXPECT_EQ(counts->saturated, 0);
  }
  params.accumulator = Accumulator::fp32;
  EXPECT_TRUE(identical(emulate(params).out, got.out));
}

TEST_P(In16Bits, BitsAreThoseOfEverySimdTargetAndNumberOfThreads) {
  Inputs x = inputs({.sq = 150, .sk = 300, .hq = 2, .d = 80, .dv = 96}, 216);
  AttentionParams params = settings(x);
  const Result want = emulate(params);
  params.threads = 1;
  for (const std::string& target : emulate::simd::target_names()) {
    ASSERT_TRUE(emulate::simd::force_target(target));
    const Result got = emulate(params);
    EXPECT_TRUE(identical(got.out, want.out)) << target;
    EXPECT_TRUE(identical(got.lse, want.lse)) << target;
  }
  EXPECT_TRUE(emulate::simd::force_target(""));
}

/// Elements that are not finite stay what they are: in Q they reach their row, in K the rows that
/// attend to the key, in V their channel in the query tiles that visit the key tile.
TEST_P(In16Bits, NanReachesWhatItMust) {
  Inputs x = inputs({.sq = 130, .sk = 300, .d = 64, .dv = 64}, 210);
  AttentionParams params = settings(x);
  params.mask = MaskSpec::causal();
  const Result clean = emulate(params);
  x.q.set(x.q.at(0, 5, 0, 3), kNan);
  x.k.set(x.k.at(0, 290, 0, 3), kInfinity);
  x.v.set(x.v.at(0, 299, 0, 7), kNan);
  const Result got = emulate(params);
  for (std::int64_t i = 0; i < 130; ++i) {
    const bool sees_290 = i + 170 >= 290, row_is_nan = i == 5 || std::isnan(got.lse.get(i));
    for (std::int64_t c = 0; c < 64; ++c) {
      const float value = got.out.get(got.out.at(0, i, 0, c));
      const bool hit_by_v = c == 7 && i >= 64;  // tiles of rows that visit keys 256 to 299
      if (row_is_nan || hit_by_v) {
        EXPECT_TRUE(std::isnan(value)) << i << ", " << c;
      } else if (!sees_290) {
        EXPECT_EQ(value, clean.out.get(got.out.at(0, i, 0, c))) << i << ", " << c;
      }
    }
    EXPECT_TRUE(sees_290 || i == 5 || !row_is_nan) << i;
  }
}

TEST(InFp16, LargestValuesDoNotOverflow) {
  Inputs x = normal_inputs({.sq = 70, .sk = 333, .d = 64, .dv = 64}, 211, DType::f16);
  for (Tensor* operand : {&x.q, &x.k, &x.v}) {
    for (std::int64_t i = 0; i < operand->numel(); ++i) {
      operand->set(i, operand->get(i) < 0 ? -6e4f : 6e4f);
    }
  }
  AttentionParams params = x.params();
  params.precision = Precision::fp16;
  params.sm_scale = 3e-11;  // scores, sums of 64 terms of 3.6e9, become N(0, 0.86^2)
  const Result got = emulate(params), want = reference(params);
  EXPECT_TRUE(agrees(got.out, want.out, kFp16.bounds));
  EXPECT_TRUE(lse_agrees(got.lse, want.lse, 1e-4));
}

// ---- Mistakes that the bounds must catch

TEST_P(In16Bits, FullPrecisionAnd8BitsFail) {
  Inputs x = inputs({.sq = 130, .sk = 384}, 212);
  const Tensor want = reference(x.params()).out;
  EXPECT_FALSE(agrees(want, want, GetParam().bounds));
  EXPECT_TRUE(agrees(emulate(settings(x)).out, want, GetParam().bounds));
  EXPECT_FALSE(agrees(emulate(x.params()).out, want, GetParam().bounds));
}

TEST_P(In16Bits, PInTheOther16BitsFails) {
  const Cost& other = GetParam().precision == Precision::bf16 ? kFp16 : kBf16;
  Inputs x = inputs({.sq = 130, .sk = 384}, 213);
  for (Tensor* operand : {&x.q, &x.k, &x.v}) {
    // A few bits: both types hold the same values.
    for (std::int64_t i = 0; i < operand->numel(); ++i) {
      operand->set(i, std::round(8 * operand->get(i)) / 8);
    }
  }
  const Tensor want = reference(x.params()).out;
  EXPECT_TRUE(agrees(emulate(settings(x)).out, want, GetParam().bounds));
  EXPECT_FALSE(agrees(emulate(settings(x)).out, want, other.bounds));
}

TEST_P(In16Bits, MissingKeyTileOrKeyFails) {
  Inputs x = inputs({.sq = 130, .sk = 512}, 214);
  const Result want = reference(x.params());
  AttentionParams params = settings(x);
  EXPECT_TRUE(agrees(emulate(params).out, want.out, GetParam().bounds));
  for (const std::int64_t keys : {511, 448, 384}) {
    params.key_lengths = {keys};
    const Result got = emulate(params);
    EXPECT_FALSE(agrees(got.out, want.out, GetParam().bounds)) << keys;
    EXPECT_FALSE(lse_agrees(got.lse, want.lse, GetParam().lse)) << keys;
  }
}

TEST_P(In16Bits, ScaleOffByAPercentFails) {
  Inputs x = inputs({.sq = 130, .sk = 384}, 215);
  const Result want = reference(x.params());
  AttentionParams params = settings(x);
  params.sm_scale = 1.01 / std::sqrt(128.0);
  EXPECT_FALSE(agrees(emulate(params).out, want.out, GetParam().bounds));
}

}  // namespace
}  // namespace octavo::test
