// SPDX-License-Identifier: Apache-2.0
// The comparison that holds the emulation against the reference is itself held against wrong
// results: each of the mistakes below must make it fail, and the right result must pass.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "support/call.h"
#include "support/compare.h"

namespace octavo::test {
namespace {

/// 8 bits against double on the operands below: measured 0.0487 to 0.0507 over recipes in E4M3,
/// 0.035 with Q and K in INT8, no row off by more than 0.11.
constexpr Bounds kBounds = {0.03, 0.06, 0.2};
constexpr double kLseTolerance = 0.05;

/// Causal, so that a mask counts; blocks of 128 keys of different magnitude, so that descales do;
/// channels of V with different means, so that their order does.
Inputs mutable_inputs() {
  Inputs x = normal_inputs({.sq = 300, .sk = 384, .hq = 4, .hkv = 2}, 121, DType::f32);
  for (int block = 0; block < 3; ++block) {
    scale_rows(x.k, 128 * block, 128 * block + 128, block == 1 ? 1.0f : 0.5f);
    scale_rows(x.v, 128 * block, 128 * block + 128, block == 1 ? 2.0f : 0.5f);
  }
  return x;
}

AttentionParams settings(Inputs& x) {
  AttentionParams params = x.params();
  params.mask = MaskSpec::causal();
  return params;
}

class SlowMutation : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    inputs = new Inputs(mutable_inputs());
    codes = new Inputs(quantised(settings(*inputs), Recipe::block()));
    want = new Result(reference(settings(*inputs)));
  }
  static void TearDownTestSuite() {
    delete inputs;
    delete codes;
    delete want;
  }

  /// What the comparison says of an output.
  static testing::AssertionResult judged(const Tensor& out) {
    return agrees(out, want->out, kBounds);
  }
  static testing::AssertionResult judged(const AttentionParams& params) {
    return judged(emulate(params).out);
  }

  static Inputs* inputs;  // FP32
  static Inputs* codes;   // the same, quantised by blocks
  static Result* want;    // double precision
};
Inputs* SlowMutation::inputs = nullptr;
Inputs* SlowMutation::codes = nullptr;
Result* SlowMutation::want = nullptr;

TEST_F(SlowMutation, RightResultsPass) {
  for (const std::string& name : recipe_names()) {
    AttentionParams params = settings(*inputs);
    params.recipe = parse_recipe(name);
    EXPECT_TRUE(judged(params)) << name;
  }
  EXPECT_TRUE(judged(settings(*codes)));
  EXPECT_TRUE(lse_agrees(emulate(settings(*codes)).lse, want->lse, kLseTolerance));
}

TEST_F(SlowMutation, ZeroOutputFails) {
  EXPECT_FALSE(judged(Tensor(DType::f32, want->out.shape())));
}

TEST_F(SlowMutation, UnwrittenOutputFails) {
  Tensor out = want->out;
  out.poison();
  EXPECT_FALSE(judged(out));
}

TEST_F(SlowMutation, UnwrittenLastRowFails) {
  Tensor out = emulate(settings(*codes)).out;
  out.set(out.numel() - 1, std::nanf(""));
  EXPECT_FALSE(judged(out));
}

TEST_F(SlowMutation, OutputInFullPrecisionFailsForFp8DidNotHappen) {
  EXPECT_FALSE(judged(want->out));
  EXPECT_FALSE(judged(reference(settings(*inputs), DType::bf16).out));
}

/// On operands that are quantised already only P is rounded: measured 0.021.
TEST_F(SlowMutation, WeightsInFullPrecisionFail) {
  const Tensor exact = reference(settings(*codes)).out;
  const Bounds weights_only = {0.015, 0.03};
  EXPECT_TRUE(agrees(emulate(settings(*codes)).out, exact, weights_only));
  EXPECT_FALSE(agrees(exact, exact, weights_only));
}

TEST_F(SlowMutation, TransposedValuesFail) {
  Inputs x = *codes;  // each tile of 128 keys x 128 channels
  for (std::int64_t s = 0; s < 384; ++s) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t c = 0; c < 128; ++c) {
        const std::int64_t key = s / 128 * 128 + c;
        x.v.set(x.v.at(0, s, h, c), codes->v.get(codes->v.at(0, key, h, s % 128)));
      }
    }
  }
  EXPECT_FALSE(judged(settings(x)));
}

TEST_F(SlowMutation, TwoSwappedKeysOfVFail) {
  Inputs x = *codes;
  for (std::int64_t i = 0; i < 256; ++i) {
    const float a = x.v.get(x.v.at(0, 2, 0, 0) + i), b = x.v.get(x.v.at(0, 3, 0, 0) + i);
    x.v.set(x.v.at(0, 2, 0, 0) + i, b);
    x.v.set(x.v.at(0, 3, 0, 0) + i, a);
  }
  EXPECT_FALSE(judged(settings(x)));
}

TEST_F(SlowMutation, DroppedDescaleFails) {
  for (Tensor Inputs::*descale : {&Inputs::q_descale, &Inputs::k_descale, &Inputs::v_descale}) {
    Inputs all = *codes, last = *codes;
    for (std::int64_t i = 0; i < (all.*descale).numel(); ++i) (all.*descale).set(i, 1.0f);
    EXPECT_FALSE(judged(settings(all)));
    (last.*descale).set((last.*descale).numel() - 1, 1.0f);
    EXPECT_FALSE(judged(settings(last))) << "of one block";
  }
}

TEST_F(SlowMutation, PermutedDescalesFail) {
  for (Tensor Inputs::*descale : {&Inputs::k_descale, &Inputs::v_descale}) {
    Inputs x = *codes;  // blocks 0 and 1 of one head
    const float first = (x.*descale).get(0), second = (x.*descale).get(1);
    (x.*descale).set(0, second);
    (x.*descale).set(1, first);
    EXPECT_FALSE(judged(settings(x)));
  }
}

TEST_F(SlowMutation, MaskOffByOneFails) {
  for (const MaskSpec& mask :
       {MaskSpec::window(-1, 1), MaskSpec::window(82, 0), MaskSpec::none()}) {
    AttentionParams params = settings(*codes);
    params.mask = mask;
    EXPECT_FALSE(judged(params));
  }
  AttentionParams shorter = settings(*codes);  // every row sees one key less
  shorter.k.shape[1] = shorter.v.shape[1] = 383;
  EXPECT_FALSE(judged(shorter));
}

/// Keys [first, last) taken out.
Tensor without_keys(const Tensor& x, std::int64_t first, std::int64_t last) {
  const std::vector<float> values = x.values();
  const auto at = [&](std::int64_t key) { return values.begin() + x.at(0, key, 0, 0); };
  std::vector<float> kept(values.begin(), at(first));
  kept.insert(kept.end(), at(last), values.end());
  return Tensor(x.dtype(), {1, x.extent(1) - (last - first), x.extent(2), x.extent(3)}, kept);
}

TEST_F(SlowMutation, SkippedKeyBlockFails) {
  const Result all = reference(inputs->params());
  EXPECT_TRUE(agrees(emulate(inputs->params()).out, all.out, kBounds));
  for (const std::int64_t block : {0, 1, 2}) {
    Inputs x = *inputs;
    x.k = without_keys(x.k, 128 * block, 128 * block + 128);
    x.v = without_keys(x.v, 128 * block, 128 * block + 128);
    EXPECT_FALSE(agrees(emulate(x.params()).out, all.out, kBounds)) << "block " << block;
  }
}

TEST_F(SlowMutation, BlockOfZerosFails) {
  Inputs plain = normal_inputs({.sq = 300, .sk = 384}, 123);
  const Result all = reference(plain.params());
  EXPECT_TRUE(agrees(emulate(plain.params()).out, all.out, kBounds));
  for (Tensor Inputs::*operand : {&Inputs::k, &Inputs::v}) {
    for (const std::int64_t block : {0, 1, 2}) {
      Inputs x = plain;
      scale_rows(x.*operand, 128 * block, 128 * block + 128, 0.0f);
      EXPECT_FALSE(agrees(emulate(x.params()).out, all.out, kBounds)) << "block " << block;
    }
  }
}

TEST_F(SlowMutation, KeyBlockCountedTwiceFails) {
  Inputs x = *codes;
  for (Tensor Inputs::*operand : {&Inputs::k, &Inputs::v}) {
    Tensor& tensor = x.*operand;
    for (std::int64_t i = 0; i < tensor.at(0, 128, 0, 0); ++i) {
      tensor.set(tensor.at(0, 128, 0, 0) + i, tensor.get(i));
    }
  }
  for (Tensor Inputs::*descale : {&Inputs::k_descale, &Inputs::v_descale}) {
    (x.*descale).set(1, (x.*descale).get(0));
    (x.*descale).set(4, (x.*descale).get(3));
  }
  EXPECT_FALSE(judged(settings(x)));
}

TEST_F(SlowMutation, WrongKeyHeadFails) {
  AttentionParams params = settings(*inputs);
  params.recipe = Recipe::per_tensor();
  params.k.data = row_pointer(params.k, 0, 0, 1);  // every query head on key head 1
  params.k.stride[2] = 0;
  EXPECT_FALSE(judged(params));
}

TEST_F(SlowMutation, ScaleOfSoftmaxOffByAFewPercentFails) {
  for (const float factor : {0.93f, 1.07f}) {
    AttentionParams params = settings(*codes);
    params.sm_scale = factor / std::sqrt(128.0f);
    EXPECT_FALSE(judged(params)) << factor;
  }
}

TEST_F(SlowMutation, SumOfOneRowOffByAFifthFails) {
  Tensor out = emulate(settings(*codes)).out;
  for (std::int64_t c = 0; c < 128; ++c) {
    const std::int64_t at = out.at(0, 150, 2, c);
    out.set(at, 1.25f * out.get(at));
  }
  EXPECT_FALSE(judged(out));
}

TEST_F(SlowMutation, ValuesNotPromotedOverALongSumFail) {
  Inputs x = normal_inputs({.sq = 2, .sk = 32768, .hq = 1, .hkv = 1}, 122);
  for (std::int64_t i = 0; i < x.q.numel(); ++i) x.q.set(i, 0.0f);
  for (std::int64_t i = 0; i < x.v.numel(); ++i) x.v.set(i, x.v.get(i) + 0.5f);
  const Result exact = reference(x.params());
  AttentionParams params = x.params(Recipe::block());
  const Bounds bounds = {0, 0.02};
  EXPECT_TRUE(agrees(emulate(params).out, exact.out, bounds));
  params.promote_every = 0;
  EXPECT_FALSE(agrees(emulate(params).out, exact.out, bounds));
}

// ---- Log-sum-exps

TEST_F(SlowMutation, LseWithoutTheShiftOfSmoothingFails) {
  Inputs offset = *inputs;
  for (std::int64_t i = 0; i < offset.k.numel(); ++i) offset.k.set(i, offset.k.get(i) + 0.1f);
  const Result exact = reference(settings(offset));
  Inputs smooth = quantised(settings(offset), parse_recipe("block+smooth"));
  EXPECT_TRUE(lse_agrees(emulate(settings(smooth)).lse, exact.lse, kLseTolerance));
  AttentionParams without = settings(smooth);
  without.score_shift = {};
  EXPECT_FALSE(lse_agrees(emulate(without).lse, exact.lse, kLseTolerance));
}

TEST_F(SlowMutation, LseInBaseTwoOrWithoutTheMaximumOrOffByOneKeyFails) {
  const Tensor lse = emulate(settings(*codes)).lse;
  Tensor base_two = lse, shifted = lse;
  for (std::int64_t i = 0; i < lse.numel(); ++i) {
    base_two.set(i, lse.get(i) * 1.442695f);
    shifted.set(i, lse.get(i) + std::log(256.0f));
  }
  EXPECT_FALSE(lse_agrees(base_two, want->lse, kLseTolerance));
  EXPECT_FALSE(lse_agrees(shifted, want->lse, kLseTolerance)) << "P's factor of 2^8 left in";
  AttentionParams params = settings(*codes);
  params.mask = MaskSpec::window(-1, 1);
  EXPECT_FALSE(lse_agrees(emulate(params).lse, want->lse, kLseTolerance));
}

TEST_F(SlowMutation, FiniteLseWhereMinusInfinityIsWantedFails) {
  Tensor lse = want->lse, got = want->lse;
  lse.set(3, -std::numeric_limits<float>::infinity());
  got.set(3, -100.0f);
  EXPECT_FALSE(lse_agrees(got, lse, kLseTolerance));
  EXPECT_FALSE(lse_agrees(lse, got, kLseTolerance));
}

}  // namespace
}  // namespace octavo::test
