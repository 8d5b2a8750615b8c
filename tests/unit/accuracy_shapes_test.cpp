// SPDX-License-Identifier: Apache-2.0
// Accuracy where shapes, dtypes and threads vary: what must cost nothing, and what must not matter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "support/call.h"
#include "support/compare.h"
#include "support/recipes.h"
#include "support/sanitizer.h"

namespace octavo::test {
namespace {

/// Measured from 0.021 (one key: only V is rounded) to 0.068 (few queries); single rows of few
/// channels are off by up to 0.18.
constexpr Bounds kBounds = {0.015, 0.075, 0.3};

/// Measured up to 0.084, where a row sees one key and nothing averages out.
constexpr double kLseTolerance = 0.12;

void expect_accurate(const Extents& n, const MaskSpec& mask, const std::string& recipe) {
  SCOPED_TRACE(testing::Message() << "sq " << n.sq << ", sk " << n.sk << ", hq " << n.hq << ", hkv "
                                  << n.hkv << ", d " << n.d << ", dv " << n.dv << ", right "
                                  << mask.right << ", " << recipe);
  Inputs x = normal_inputs(n, 131);
  AttentionParams params = x.params(parse_recipe(recipe));
  params.mask = mask;
  const Result got = emulate(params), want = reference(params);
  EXPECT_TRUE(agrees(got.out, want.out, kBounds));
  EXPECT_TRUE(lse_agrees(got.lse, want.lse, kLseTolerance));
}

constexpr std::int64_t kOddLengths[] = {1, 3, 63, 64, 65, 113, 127, 128, 129, 799, 1023};

TEST(AccuracyShapes, OddLengthsOfKeysAndQueriesAlike) {
  for (const std::int64_t s : kOddLengths) {
    expect_accurate({.sq = s, .sk = s, .d = 64, .dv = 64}, MaskSpec::causal(), "default");
    expect_accurate({.sq = s, .sk = s, .d = 64, .dv = 64}, MaskSpec::window(40, 1), "block");
  }
}

TEST(AccuracyShapes, OddLengthsOfKeysUnderOtherNumbersOfQueries) {
  for (const std::int64_t sk : kOddLengths) {
    for (const std::int64_t sq : {1, 65}) {
      expect_accurate({.sq = sq, .sk = sk, .d = 64, .dv = 64}, MaskSpec::none(), "default");
      expect_accurate({.sq = sq, .sk = sk, .d = 64, .dv = 64}, MaskSpec::none(), "strict_causal");
    }
  }
  expect_accurate({.sq = 65, .sk = 4224, .d = 64, .dv = 64}, MaskSpec::causal(), "default");
}

TEST(AccuracyShapes, OddNumbersOfQueriesOverOtherLengthsOfKeys) {
  for (const std::int64_t sq : kOddLengths) {
    expect_accurate({.sq = sq, .sk = 200, .d = 64, .dv = 64}, MaskSpec::none(), "default");
    expect_accurate({.sq = sq, .sk = 1100, .d = 64, .dv = 64}, MaskSpec::causal(), "block");
  }
}

TEST(AccuracyShapes, EveryPairOfHeadDims) {
  constexpr std::int64_t kDims[] = {8, 40, 64, 72, 96, 128, 160, 192, 256};
  for (const std::int64_t d : kDims) {
    for (const std::int64_t dv : kDims) {
      expect_accurate({.sq = 33, .sk = 150, .d = d, .dv = dv}, MaskSpec::none(), "default");
    }
  }
}

TEST(AccuracyShapes, GroupedQueryHeads) {
  for (const auto& [hq, hkv] :
       {std::pair<std::int64_t, std::int64_t>{6, 1}, {6, 2}, {6, 3}, {9, 3}, {5, 5}}) {
    expect_accurate({.b = 2, .sq = 40, .sk = 150, .hq = hq, .hkv = hkv}, MaskSpec::none(),
                    "default");
  }
}

/// Numbers that BF16, FP16 and FP32 all hold: multiples of 1/8 under 16.
Inputs common_numbers(DType dtype) {
  Inputs x = normal_inputs({.sq = 140, .sk = 200, .hq = 2, .hkv = 1}, 132, DType::f32);
  for (Tensor* tensor : {&x.q, &x.k, &x.v}) {
    std::vector<float> values = tensor->values();
    for (float& value : values) value = std::round(8 * value) / 8;
    *tensor = Tensor(dtype, tensor->shape(), values);
  }
  return x;
}

TEST(AccuracyShapes, SameNumbersInAnyInputDtypeGiveTheSameBits) {
  for (const char* engine : {"emulate", "reference"}) {
    Inputs f32 = common_numbers(DType::f32);
    const Result want = run(f32.params(), engine);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      Inputs x = common_numbers(dtype);
      EXPECT_TRUE(identical(run(x.params(), engine).out, want.out)) << dtype_name(dtype);
      EXPECT_TRUE(identical(run(x.params(), engine).lse, want.lse)) << dtype_name(dtype);
      AttentionParams mixed = f32.params();
      mixed.k = x.k.view();
      EXPECT_TRUE(identical(run(mixed, engine).out, want.out)) << "k in " << dtype_name(dtype);
    }
  }
}

TEST(AccuracyShapes, OutputDtypesAreTheFp32OutputRounded) {
  Inputs x = normal_inputs({.sq = 140, .sk = 200, .hq = 2, .hkv = 1, .dv = 72}, 133);
  for (const char* engine : {"emulate", "reference"}) {
    const Tensor exact = run(x.params(), engine).out;
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const Tensor rounded(dtype, exact.shape(), exact.values());
      EXPECT_TRUE(identical(run(x.params(), engine, dtype).out, rounded)) << dtype_name(dtype);
      EXPECT_FALSE(agrees(rounded, exact, {0, 1e-5})) << "rounding did not happen";
    }
  }
}

bool same_counts(const CastCounts& a, const CastCounts& b) {
  return a.saturated == b.saturated && a.flushed == b.flushed && a.total == b.total;
}

TEST(AccuracyShapes, NumberOfThreadsDoesNotChangeABit) {
  const std::int64_t s = kSanitized ? 140 : 300;
  Inputs x = normal_inputs({.b = 2, .sq = s, .sk = s, .hq = 4, .hkv = 2}, 134);
  const std::vector<int> counts = kSanitized ? std::vector{3} : std::vector{2, 3, 16, 0};
  for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
    AttentionParams params = x.params(recipe);
    params.softmax = path;
    params.mask = MaskSpec::causal();
    params.threads = 1;
    const Result want = emulate(params);
    for (const int threads : counts) {
      params.threads = threads;
      const Result got = emulate(params);
      EXPECT_TRUE(identical(got.out, want.out)) << threads << " threads";
      EXPECT_TRUE(identical(got.lse, want.lse)) << threads << " threads";
      EXPECT_TRUE(same_counts(got.stats.q, want.stats.q));
      EXPECT_TRUE(same_counts(got.stats.k, want.stats.k));
      EXPECT_TRUE(same_counts(got.stats.v, want.stats.v));
      EXPECT_TRUE(same_counts(got.stats.p, want.stats.p));
    }
  });
}

TEST(AccuracyShapes, SecondRunGivesTheSameBits) {
  Inputs x = normal_inputs({.sq = 140, .sk = 300, .hq = 2, .hkv = 1}, 135);
  for (const char* engine : {"emulate", "reference"}) {
    EXPECT_TRUE(identical(run(x.params(), engine).out, run(x.params(), engine).out)) << engine;
  }
}

TEST(AccuracyShapes, ProgressGrowsToOne) {
  Inputs x = normal_inputs({.b = 2, .sq = 300, .sk = 100, .hq = 2, .hkv = 1}, 136);
  for (const char* engine : {"emulate", "reference"}) {
    std::mutex mutex;
    std::vector<double> shares;
    AttentionParams params = x.params();
    params.progress = [&](double share) {
      const std::lock_guard lock(mutex);
      shares.push_back(share);
    };
    run(params, engine);
    ASSERT_FALSE(shares.empty()) << engine;
    std::sort(shares.begin(), shares.end());
    EXPECT_GT(shares.front(), 0.0);
    EXPECT_DOUBLE_EQ(shares.back(), 1.0);
    EXPECT_GE(shares.size(), 4u);
  }
}

}  // namespace
}  // namespace octavo::test
