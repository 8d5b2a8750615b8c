// SPDX-License-Identifier: Apache-2.0
// INT8 codes of Q and K: rounding, exact sums, what is not finite, and the error that they save.
#include "core/int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/quant_block.h"
#include "support/call.h"
#include "support/compare.h"
#include "support/refusal.h"
#include "workload/problem.h"
#include "workload/verify.h"

namespace octavo::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Int8, RoundsToTheNearestIntegerHalfToEven) {
  for (int i = -127; i <= 127; ++i) {
    const auto x = static_cast<float>(i);
    EXPECT_EQ(decode_int8(encode_int8(x, 1.0f)), x);
    if (i == 127) break;
    const int even = i % 2 == 0 ? i : i + 1;
    EXPECT_EQ(decode_int8(encode_int8(x + 0.5f, 1.0f)), static_cast<float>(even)) << i;
    EXPECT_EQ(decode_int8(encode_int8(x + 0.499f, 1.0f)), x);
    EXPECT_EQ(decode_int8(encode_int8(x + 0.501f, 1.0f)), x + 1);
  }
}

TEST(Int8, TheLargestOfABlockBecomes127ForAnyMagnitude) {
  for (float amax = 1e-30f; amax < 1e30f; amax *= 1.7f) {
    const ScalePair pair = scale_of(amax, DType::i8);
    EXPECT_EQ(decode_int8(encode_int8(amax, pair.scale)), 127.0f) << amax;
    EXPECT_EQ(decode_int8(encode_int8(-amax, pair.scale)), -127.0f) << amax;
    EXPECT_NEAR(127.0f * pair.descale / amax, 1.0f, 1e-6f);
  }
}

TEST(Int8, WhatIsNotFiniteIsMinusOneBesideADescaleOfNan) {
  EXPECT_TRUE(std::isnan(scale_of(kNan, DType::i8).descale));
  EXPECT_EQ(encode_int8(kNan, 1.0f), 0xff);
  EXPECT_EQ(scale_of(kNan, DType::i8).scale, 0.0f);
  EXPECT_EQ(encode_int8(INFINITY, 0.0f), 0xff);
  EXPECT_EQ(encode_int8(3.0f, 0.0f), 0);
}

/// Any sum of 256 products is an integer that FP32 holds beside kInt8Zero.
TEST(Int8, SumsBesideZeroAreExact) {
  for (const float sum : {-256.0f * 128 * 128, -1.0f, 0.0f, 1.0f, 256.0f * 128 * 128}) {
    EXPECT_EQ((kInt8Zero + sum) - kInt8Zero, sum);
    const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(kInt8Zero)) +
                      static_cast<std::int32_t>(sum);
    EXPECT_EQ(std::bit_cast<float>(bits), kInt8Zero + sum) << "as an INT32 sum ends";
  }
}

/// Scores of 0 are nearly equal weights, whatever the descales: tiles differ by the rounding of
/// kInt8Zero times the factor.
TEST(Int8, FactorsOfAnySizeLeaveEqualScoresEqual) {
  Inputs plain = normal_inputs({.sq = 70, .sk = 200}, 3);
  Inputs codes = quantised(plain.params(), parse_recipe("block+int8"));
  for (std::int64_t i = 0; i < codes.k.numel(); ++i) codes.k.set(i, 0.0f);
  for (const float descale : {1e-6f, 1e-3f, 0.03f, 0.3f, 1.0f, 5.0f, 1e3f, 1e30f}) {
    for (std::int64_t i = 0; i < codes.k_descale.numel(); ++i) {
      codes.k_descale.set(i, descale * (1 + static_cast<float>(i)));
    }
    for (const SoftmaxPath path : {SoftmaxPath::exact, SoftmaxPath::direct}) {
      AttentionParams params = codes.params();
      params.softmax = path;
      const Result got = emulate(params), want = reference(codes.params());
      EXPECT_TRUE(agrees(got.out, want.out, {0, descale < 1e-3f ? 2e-3 : 0.1}))
          << descale << softmax_name(path);
      EXPECT_TRUE(lse_agrees(got.lse, want.lse, descale < 1e-3f ? 0.05 : 0.2))
          << descale << softmax_name(path);
    }
  }
}

/// Each row is its largest score then, or so; which one that is rounding decides, but a number it
/// is.
TEST(Int8, HotScoresStayNumbers) {
  Inputs x = normal_inputs({.sq = 130, .sk = 257}, 4);
  for (const double scale : {1e2, 1e4, 1e6}) {
    for (const SoftmaxPath path : {SoftmaxPath::exact, SoftmaxPath::direct}) {
      AttentionParams params = x.params();
      params.sm_scale = scale;
      params.softmax = path;
      const Result got = emulate(params);
      EXPECT_TRUE(all_finite(got.out)) << scale << softmax_name(path);
      EXPECT_TRUE(all_finite(got.lse)) << scale << softmax_name(path);
    }
  }
}

TEST(Int8, ScoresErrBelowHalfOfWhatE4m3Does) {
  for (const char* dist : {"normal", "outlier", "channel"}) {
    const auto error = [&](const std::string& recipe) {
      // Few weights decide each row, so errors of scores are what is seen.
      const auto problem = workload::parse_problem(
          "s500 h2 scale=0.3 out=f32 dist=" + std::string(dist) + " recipe=" + recipe);
      return workload::verify_problem(problem, "emulate", "reference").out.relative_l2;
    };
    EXPECT_LT(error("default"), 0.5 * error("fp8")) << dist;
  }
}

TEST(Int8, ExactPathAndDirectPathTakeTheZeroBackOut) {
  for (const char* how : {"", " softmax=direct", " softcap=20", " recipe=strict_causal+int8"}) {
    for (const char* scale : {"0.001", "0.1", "2"}) {
      const std::string recipe =
          std::string(how).find("recipe") == std::string::npos ? " recipe=default" : "";
      const auto problem = workload::parse_problem(
          "s300 h2 causal in=f8 out=f32 scale=" + std::string(scale) + recipe + how);
      const auto verdict = workload::verify_problem(problem, "emulate", "reference");
      EXPECT_TRUE(verdict.ok) << workload::format_problem(problem) << ": " << verdict.why;
    }
  }
}

TEST(Int8, OperandsThatTensorCoresCannotMultiplyAreRefused) {
  Inputs plain = normal_inputs({}, 1);
  const Inputs int8 = quantised(plain.params(), parse_recipe("block+int8"));
  const Inputs fp8 = quantised(plain.params(), Recipe::block());
  EXPECT_EQ(int8.q.dtype(), DType::i8);
  EXPECT_EQ(int8.v.dtype(), DType::f8_e4m3);
  Inputs mixed = int8;
  mixed.k = fp8.k;
  expect_error("k.dtype is f8_e4m3; must be i8, since q is i8", [&] { emulate(mixed.params()); });
  mixed = fp8;
  mixed.k = int8.k;
  expect_error("k.dtype is i8; must be FP8, since q is f8_e4m3", [&] { emulate(mixed.params()); });
  mixed = int8;
  mixed.v = int8.k;
  expect_error("v.dtype is i8; must be f32, f16, bf16, f8_e4m3 or f8_e5m2",
               [&] { emulate(mixed.params()); });
  for (const char* both : {"block+e5m2+int8", "block+int8+e5m2"}) {
    expect_error("must be one with +int8 or +e5m2, not both", [&] { parse_recipe(both); });
  }
  Recipe spelled = parse_recipe("block+int8");
  spelled.kv_format = DType::f8_e5m2;
  expect_error("must have one of +int8 and +e5m2", [&] { emulate(plain.params(spelled)); });
}

TEST(Int8, ACacheOfInt8KeysTakesQueriesIn16Bits) {
  Inputs plain = normal_inputs({}, 2);
  Inputs cached = quantised(plain.params(), parse_recipe("block+int8"));
  const Tensor want = emulate(cached.params()).out;
  cached.q = plain.q;
  cached.q_descale = {};
  EXPECT_TRUE(identical(emulate(cached.params()).out, want));
  expect_error("recipe is block; must have Q and K in INT8 (+int8), since k is i8",
               [&] { emulate(cached.params(Recipe::block())); });
}

}  // namespace
}  // namespace octavo::test
