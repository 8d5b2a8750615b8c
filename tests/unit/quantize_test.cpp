// SPDX-License-Identifier: Apache-2.0
// quantize(): codes and descales by definition, and the same attention from its output as from the
// inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/e4m3.h"
#include "core/hadamard.h"
#include "core/quant_block.h"
#include "core/tile_table.h"
#include "octavo/attention.h"
#include "octavo/quantize.h"
#include "support/sanitizer.h"

namespace octavo {
namespace {

struct Shape {
  std::int64_t b = 2, sq = 130, sk = 300, hq = 4, hkv = 2, d = 64, dv = 64;
};

std::vector<float> uniform(std::int64_t n, std::uint64_t seed, float offset = 0) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (auto& value : x) {
    value = static_cast<float>(static_cast<double>(split_mix(seed) >> 11) * 0x1p-52 - 1.0) + offset;
  }
  return x;
}

struct Inputs {
  explicit Inputs(const Shape& n)
      : shape(n),
        q(uniform(n.b * n.sq * n.hq * n.d, 1)),
        k(uniform(n.b * n.sk * n.hkv * n.d, 2, 3.0f)),
        v(uniform(n.b * n.sk * n.hkv * n.dv, 3)) {}

  QuantizeParams params(const Recipe& recipe) {
    QuantizeParams p;
    p.q = contiguous(q.data(), DType::f32, {shape.b, shape.sq, shape.hq, shape.d});
    p.k = contiguous(k.data(), DType::f32, {shape.b, shape.sk, shape.hkv, shape.d});
    p.v = contiguous(v.data(), DType::f32, {shape.b, shape.sk, shape.hkv, shape.dv});
    p.recipe = recipe;
    return p;
  }

  Shape shape;
  std::vector<float> q, k, v;
};

struct Output {
  std::vector<float> out, lse;
};

Output attend(AttentionParams params, const Shape& n) {
  Output r{std::vector<float>(static_cast<std::size_t>(n.b * n.sq * n.hq * n.dv), NAN),
           std::vector<float>(static_cast<std::size_t>(n.b * n.hq * n.sq), NAN)};
  params.out = contiguous(r.out.data(), DType::f32, {n.b, n.sq, n.hq, n.dv});
  params.lse = contiguous(r.lse.data(), DType::f32, {n.b, n.hq, n.sq});
  params.engine = "emulate";
  params.mask = MaskSpec::causal();
  attention_forward(params);
  return r;
}

class QuantizeRecipes : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantizeRecipes, AttentionFromItsOutputHasTheBitsOfAttentionFromTheInputs) {
  for (const std::int64_t d : {64, 80, 192}) {
    Shape n;
    if (test::kSanitized) n.b = 1, n.sq = 70, n.sk = 140;
    n.d = d;
    Inputs inputs(n);
    const QuantizeParams p = inputs.params(parse_recipe(GetParam()));
    AttentionParams direct;
    direct.q = p.q;
    direct.k = p.k;
    direct.v = p.v;
    direct.recipe = p.recipe;
    const Output expected = attend(direct, n);

    QuantizedQkv x = quantize(p);
    AttentionParams from_codes;
    from_codes.q = x.q.view();
    from_codes.k = x.k.view();
    from_codes.v = x.v.view();
    from_codes.q_descale = x.q.descale_view();
    from_codes.k_descale = x.k.descale_view();
    from_codes.v_descale = x.v.descale_view();
    from_codes.sm_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(x.head_dim)));
    direct.sm_scale = from_codes.sm_scale;
    const Output same_scale = attend(direct, n);
    if (!x.score_shift.empty()) {
      from_codes.score_shift = contiguous(x.score_shift.data(), DType::f32, {n.b, n.hq, n.sq});
    }
    const Output actual = attend(from_codes, n);
    EXPECT_EQ(actual.out, same_scale.out) << "d " << d;
    EXPECT_EQ(actual.lse, same_scale.lse) << "d " << d;
    EXPECT_EQ(expected.out.size(), actual.out.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, QuantizeRecipes,
                         ::testing::Values("per_tensor", "per_head", "block", "default",
                                           "strict_causal", "block+rotate", "per_head+smooth",
                                           "block+e5m2"));

TEST(Quantize, BlockDescalesAreTheBlocksAmaxOver448) {
  Shape n;
  Inputs inputs(n);
  const QuantizedQkv x = quantize(inputs.params(Recipe::block()));
  ASSERT_EQ(x.k.descale_shape, (std::vector<std::int64_t>{n.b, n.hkv, 3}));
  ASSERT_EQ(x.q.descale_shape, (std::vector<std::int64_t>{n.b, n.hq, 3}));
  for (std::int64_t b = 0; b < n.b; ++b) {
    for (std::int64_t h = 0; h < n.hkv; ++h) {
      for (std::int64_t block = 0; block < 3; ++block) {
        float a = 0;
        for (std::int64_t s = block * 128; s < std::min<std::int64_t>(n.sk, block * 128 + 128);
             ++s) {
          for (std::int64_t c = 0; c < n.d; ++c) {
            a = std::fmax(
                a, std::fabs(
                       inputs.k[static_cast<std::size_t>(((b * n.sk + s) * n.hkv + h) * n.d + c)]));
          }
        }
        EXPECT_EQ(x.k.descale[static_cast<std::size_t>((b * n.hkv + h) * 3 + block)], a / 448.0f);
      }
    }
  }
}

TEST(Quantize, CodesTimesDescalesAreTheInputsWithinHalfAStep) {
  Shape n;
  Inputs inputs(n);
  const QuantizedQkv x = quantize(inputs.params(Recipe::per_tensor()));
  ASSERT_EQ(x.v.descale.size(), 1u);
  for (std::size_t i = 0; i < inputs.v.size(); ++i) {
    const float back = E4m3::decode(x.v.codes[i]) * x.v.descale[0];
    const float step = std::fmax(std::fabs(inputs.v[i]) / 16.0f, 0x1p-10f * x.v.descale[0]);
    ASSERT_LE(std::fabs(back - inputs.v[i]), step * 1.001f) << i;
  }
}

TEST(Quantize, AllZeroInputHasZeroCodesAndFiniteDescales) {
  Shape n;
  Inputs inputs(n);
  std::fill(inputs.k.begin(), inputs.k.end(), 0.0f);
  const QuantizedQkv x = quantize(inputs.params(Recipe::standard()));
  for (std::uint8_t code : x.k.codes) ASSERT_EQ(code & 0x7f, 0);
  for (float descale : x.k.descale) {
    EXPECT_TRUE(std::isfinite(descale));
    EXPECT_GT(descale, 0.0f);
    EXPECT_TRUE(std::isfinite(1.0f / descale));
  }
}

TEST(Quantize, RowsPastTheKeyLengthAreCodeZeroWhateverTheyHold) {
  Shape n;
  Inputs inputs(n);
  QuantizeParams p = inputs.params(Recipe::standard());
  p.key_lengths = {130, 300};
  const QuantizedQkv before = quantize(p);
  for (std::int64_t i = 130 * n.hkv * n.d; i < n.sk * n.hkv * n.d; ++i) {
    inputs.k[static_cast<std::size_t>(i)] = NAN;
    inputs.v[static_cast<std::size_t>(i)] = NAN;
  }
  const QuantizedQkv after = quantize(p);
  EXPECT_EQ(before.k.codes, after.k.codes);
  EXPECT_EQ(before.v.codes, after.v.codes);
  EXPECT_EQ(before.k.descale, after.k.descale);
  EXPECT_EQ(before.score_shift, after.score_shift);
  for (std::int64_t i = 130 * n.hkv * n.d; i < n.sk * n.hkv * n.d; ++i) {
    ASSERT_EQ(after.k.codes[static_cast<std::size_t>(i)], 0);
  }
}

TEST(Quantize, ATensorsDescaleIsThatOfAllItsKeysWhicheverEntryHasNone) {
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{130, 0}, {0, 130}}) {
    Inputs x({});
    QuantizeParams p = x.params(parse_recipe("per_tensor"));
    p.key_lengths = lengths;
    const QuantizedQkv out = quantize(p);
    const std::int64_t entry = x.shape.sk * x.shape.hkv * x.shape.d,
                       from = lengths[0] == 0 ? entry : 0;
    float most = 0;
    for (std::int64_t i = from; i < from + 130 * x.shape.hkv * x.shape.d; ++i) {
      most = std::max(most, std::fabs(x.k[static_cast<std::size_t>(i)]));
    }
    ASSERT_EQ(out.k.descale.size(), 1U);
    EXPECT_EQ(out.k.descale[0], most / 448.0f);
  }
}

TEST(Quantize, NonFiniteElementsBecomeNanAndDoNotFlattenTheirBlock) {
  Shape n;
  Inputs inputs(n);
  const QuantizedQkv clean = quantize(inputs.params(Recipe::block()));
  inputs.v[5] = INFINITY;
  const QuantizedQkv x = quantize(inputs.params(Recipe::block()));
  EXPECT_TRUE(E4m3::is_nan(x.v.codes[5]));
  EXPECT_EQ(x.v.descale, clean.v.descale);
  int different = 0;
  for (std::size_t i = 0; i < x.v.codes.size(); ++i) different += x.v.codes[i] != clean.v.codes[i];
  EXPECT_EQ(different, 1);
}

}  // namespace
}  // namespace octavo
