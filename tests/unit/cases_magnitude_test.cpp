// SPDX-License-Identifier: Apache-2.0
// Operands whose magnitudes differ between blocks, channels or keys, or are far from 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "support/call.h"
#include "support/compare.h"
#include "support/distributions.h"
#include "support/recipes.h"

namespace octavo::test {
namespace {

/// Relative L2 error of the rows of `x` before its last block of 128 keys, under a causal mask:
/// they see nothing of that block but through a scale that they share with it.
double error_before_last_block(Inputs& x, const Recipe& recipe) {
  AttentionParams params = x.params(recipe);
  params.mask = MaskSpec::causal();
  const std::int64_t rows = x.q.extent(1) - 128;
  const Tensor got = rows_of(emulate(params).out, 0, rows);
  return difference(got, rows_of(reference(params).out, 0, rows)).relative_l2;
}

TEST(SlowCasesMagnitude, LoudBlockLeavesOtherBlocksAsAccurateAsBeforeUnderBlockScales) {
  Inputs plain = normal_inputs({.sq = 512, .sk = 512}, 7);
  for (const float factor : {100.0f, 65536.0f}) {
    Inputs loud_k = plain, loud_v = plain;
    scale_rows(loud_k.k, 384, 512, factor);
    scale_rows(loud_v.v, 384, 512, factor);
    for (const char* name : {"block", "block+rotate", "strict_causal"}) {
      SCOPED_TRACE(testing::Message() << name << ", factor " << factor);
      const double before = error_before_last_block(plain, parse_recipe(name));
      EXPECT_EQ(error_before_last_block(loud_k, parse_recipe(name)), before);
      EXPECT_EQ(error_before_last_block(loud_v, parse_recipe(name)), before);
    }
  }
}

TEST(SlowCasesMagnitude, LoudBlockSpoilsOtherBlocksUnderOneScaleForAll) {
  Inputs plain = normal_inputs({.sq = 512, .sk = 512}, 7), loud_k = plain, loud_v = plain;
  scale_rows(loud_k.k, 384, 512, 65536.0f);
  scale_rows(loud_v.v, 384, 512, 65536.0f);
  for (const char* name : {"per_tensor", "per_head"}) {
    SCOPED_TRACE(name);
    const double before = error_before_last_block(plain, parse_recipe(name));
    EXPECT_GT(error_before_last_block(loud_k, parse_recipe(name)), 4 * before);
    EXPECT_GT(error_before_last_block(loud_v, parse_recipe(name)), 4 * before);
  }
}

TEST(CasesMagnitude, LoudBlockOfKeysIsItselfAsAccurateAsPlainKeys) {
  Inputs x = normal_inputs({.sq = 256, .sk = 1024}, 8);
  scale_rows(x.k, 512, 640, 100.0f);
  AttentionParams params = x.params(Recipe::block());
  params.sm_scale = 0.01f / 11.3f;  // the loud block scores N(0, 1), the others next to nothing
  const Result want = reference(params);
  EXPECT_TRUE(agrees(emulate(params).out, want.out, {0.04, 0.055}));
}

TEST(SlowCasesMagnitude, CommonOffsetOfKeysIsRecoveredBySmoothing) {
  struct Offset {
    double low, high;
  };
  for (const Offset offset : {Offset{200, 200}, {10, 50}, {10, 10}, {50, 50}}) {
    SCOPED_TRACE(testing::Message() << "offsets " << offset.low << " to " << offset.high);
    Inputs x = normal_inputs({.sq = 256, .sk = 512, .hq = 2, .hkv = 2}, 9, DType::f32);
    add_channel_offsets(x, offset.low, offset.high, 10);
    const Result want = reference(x.params());
    const Result smooth = emulate(x.params(Recipe::standard()));
    EXPECT_GE(difference(smooth.out, want.out).cosine, 0.998);
    EXPECT_TRUE(lse_agrees(smooth.lse, want.lse, 0.05));
    EXPECT_LT(difference(emulate(x.params(Recipe::block())).out, want.out).cosine, 0.99);
  }
}

TEST(SlowCasesMagnitude, SinkKeyKeepsTheOtherKeysAccurate) {
  Inputs x = normal_inputs({.sq = 256, .sk = 512, .hq = 2, .hkv = 2}, 11);
  make_sink(x, 12);
  const Result want = reference(x.params());
  for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
    AttentionParams params = x.params(recipe);
    params.softmax = path;
    const Difference d = difference(emulate(params).out, want.out);
    // A sink 30 times as long as the other keys of its block leaves INT8's even steps to them.
    const bool int8 = recipe.qk_format == DType::i8;
    EXPECT_GE(d.cosine, int8 ? 0.99 : 0.995);
    EXPECT_TRUE(in_bounds(d, int8 ? Bounds{0.04, 0.13} : Bounds{0.04, 0.1}));
  });
}

/// N(0, 1) operands, each times a factor.
Inputs scaled_inputs(float q, float k, float v) {
  Inputs x = normal_inputs({.sq = 256, .sk = 256, .hq = 2, .hkv = 1}, 13, DType::f32);
  scale_rows(x.q, 0, 256, q);
  scale_rows(x.k, 0, 256, k);
  scale_rows(x.v, 0, 256, v);
  return x;
}

TEST(SlowCasesMagnitude, MagnitudesFromMillionthsToTenThousandsNeitherSaturateNorFlush) {
  for (const auto& [q, k] : {std::pair{1e4f, 1e-4f}, {1e-6f, 1e6f}, {1e-6f, 1e4f}, {1.0f, 1e-6f}}) {
    for (const float v : {1e4f, 1e-6f}) {
      SCOPED_TRACE(testing::Message() << "q " << q << ", k " << k << ", v " << v);
      Inputs x = scaled_inputs(q, k, v);
      const Result want = reference(x.params());
      for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
        AttentionParams params = x.params(recipe);
        params.softmax = path;
        const Result got = emulate(params);
        EXPECT_TRUE(agrees(got.out, want.out, {0.02, 0.06}));
        for (const CastCounts* of : {&got.stats.q, &got.stats.k, &got.stats.v}) {
          const CastCounts& counts = *of;
          EXPECT_EQ(counts.saturated, 0);
          // INT8's steps are even: of a normal distribution 1.5 % lie below half a step.
          const bool int8 = recipe.qk_format == DType::i8 && of != &got.stats.v;
          EXPECT_LT(counts.flushed, counts.total / (int8 ? 50 : 1000));
        }
      });
    }
  }
}

float max_magnitude(const Tensor& x) {
  float largest = 0;
  for (const float value : x.values()) largest = std::max(largest, std::fabs(value));
  return largest;
}

TEST(CasesMagnitude, EveryBlockFillsItsOwnRangeWhateverItsMagnitude) {
  Inputs x = normal_inputs({.sq = 512, .sk = 512}, 14, DType::f32);
  const float factors[] = {1e4f, 1e-6f, 1.0f, 30.0f};
  for (int block = 0; block < 4; ++block) {
    for (Tensor* tensor : {&x.q, &x.k, &x.v}) {
      scale_rows(*tensor, 128 * block, 128 * block + 128, factors[block]);
    }
  }
  for (const char* name : {"block", "block+rotate", "strict_causal"}) {
    SCOPED_TRACE(name);
    const Inputs codes = quantised(x.params(), parse_recipe(name));
    for (const Tensor* tensor : {&codes.q, &codes.k, &codes.v}) {
      for (int block = 0; block < 4; ++block) {
        EXPECT_EQ(max_magnitude(rows_of(*tensor, 128 * block, 128 * block + 128)), 448.0f);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
