// SPDX-License-Identifier: Apache-2.0
// NaN, infinities, padding and rows without keys.
//
// The rule for an element that is not finite: it becomes the NaN code; no amax and no mean counts
// it. From there arithmetic carries it:
//   Q        its row
//   K        rows that attend to its key
//   V        its channel, in every row of the query tiles (64 rows) that visit its key tile
//            (128 keys): the tensor core multiplies it by each row's P, and 0 * NaN is NaN
// All else is as if the element were 0.
//
// INT8 has no code for it: there the descale of its block of Q or K is NaN, so that it reaches
//   Q        the rows of its block
//   K        all rows of the query tiles that visit its key tile
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "support/call.h"
#include "support/compare.h"
#include "support/recipes.h"
#include "support/sanitizer.h"

namespace octavo::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kDim = kSanitized ? 64 : 128;
constexpr std::int64_t kLast = kDim - 1;
constexpr Extents kExtents = {.sq = 270, .sk = 270, .hq = 4, .hkv = 2, .d = kDim, .dv = kDim};

struct Element {
  std::int64_t s, h, c;
};

/// Runs a call with one element replaced.
Result run_with(const Inputs& original, Tensor Inputs::*operand, const Element& at, float value,
                const AttentionParams& settings, const char* engine = "emulate") {
  Inputs x = original;
  Tensor& tensor = x.*operand;
  tensor.set(tensor.at(0, at.s, at.h, at.c), value);
  AttentionParams params = settings;
  params.q = x.q.view();
  params.k = x.k.view();
  params.v = x.v.view();
  return run(params, engine);
}

using IsHit = std::function<bool(std::int64_t i, std::int64_t h, std::int64_t c)>;

/// NaN exactly where hit(i, h, c), the bits of `want` everywhere else.
testing::AssertionResult nan_only_where(const Tensor& got, const Tensor& want, const IsHit& hit) {
  for (std::int64_t i = 0; i < got.extent(1); ++i) {
    for (std::int64_t h = 0; h < got.extent(2); ++h) {
      for (std::int64_t c = 0; c < got.extent(3); ++c) {
        const std::int64_t at = got.at(0, i, h, c);
        const bool is_nan = std::isnan(got.get(at));
        if (hit(i, h, c) ? is_nan : got.get(at) == want.get(at)) continue;
        return testing::AssertionFailure() << "O[" << i << ", " << h << ", " << c << "] is "
                                           << got.get(at) << " (" << want.get(at) << " without)";
      }
    }
  }
  return testing::AssertionSuccess();
}

/// The same of an LSE, whose rows are hit as a whole.
testing::AssertionResult nan_only_where_lse(const Tensor& got, const Tensor& want,
                                            const IsHit& hit) {
  for (std::int64_t h = 0; h < got.extent(1); ++h) {
    for (std::int64_t i = 0; i < got.extent(2); ++i) {
      const float value = got.get(got.at(0, h, i)), without = want.get(want.at(0, h, i));
      if (hit(i, h, 0) ? std::isnan(value) : value == without) continue;
      return testing::AssertionFailure()
             << "LSE[" << h << ", " << i << "] is " << value << " (" << without << " without)";
    }
  }
  return testing::AssertionSuccess();
}

/// Recipes under which an element set to 0 leaves all other codes as they are: it is not spread
/// over its row by a rotation that shares its scale with other rows, nor moved by a mean.
bool leaves_neighbours(const Recipe& recipe, Tensor Inputs::*operand) {
  if (operand == &Inputs::v) return true;
  const Granularity granularity = operand == &Inputs::q ? recipe.q : recipe.k;
  if (granularity == Granularity::token) return !(recipe.smooth_k && operand == &Inputs::k);
  return !recipe.rotate && !(recipe.smooth_k && operand == &Inputs::k);
}

/// Holds the rule for one element of one operand under every recipe that leaves its neighbours.
void expect_rule(Tensor Inputs::*operand, const Element& at, const MaskSpec& mask,
                 const IsHit& out_hit, const IsHit& lse_hit) {
  const Inputs x = normal_inputs(kExtents, 31);
  for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
    if (!leaves_neighbours(recipe, operand)) return;
    for (const Accumulator model : {Accumulator::hopper, Accumulator::fp32}) {
      // Under sanitizers one accumulator a softmax path, each with every recipe.
      const bool exact = path == SoftmaxPath::exact;
      if (kSanitized && exact != (model == Accumulator::hopper)) continue;
      AttentionParams settings;
      settings.recipe = recipe;
      settings.softmax = path;
      settings.accumulator = model;
      settings.mask = mask;
      settings.threads = kThreads;
      const Result without = run_with(x, operand, at, 0.0f, settings);
      const bool hopper = model == Accumulator::hopper;
      for (const float value : hopper ? std::vector{kNan} : std::vector{kInfinity, -kInfinity}) {
        SCOPED_TRACE(testing::Message() << accumulator_name(model) << ", element " << value);
        const Result with = run_with(x, operand, at, value, settings);
        EXPECT_TRUE(nan_only_where(with.out, without.out, out_hit));
        EXPECT_TRUE(nan_only_where_lse(with.lse, without.lse, lse_hit));
      }
    }
  });
}

bool nowhere(std::int64_t, std::int64_t, std::int64_t) { return false; }

TEST(CasesNan, ElementOfQReachesItsRowOnly) {
  const auto row = [](std::int64_t i, std::int64_t h, std::int64_t) { return i == 70 && h == 2; };
  expect_rule(&Inputs::q, {70, 2, 5}, MaskSpec::none(), row, row);
}

TEST(CasesNan, ElementOfKReachesRowsThatAttendToItsKey) {
  const auto later = [](std::int64_t i, std::int64_t h, std::int64_t) {
    return i >= 130 && h >= 2;
  };
  expect_rule(&Inputs::k, {130, 1, 5}, MaskSpec::causal(), later, later);
  const auto near = [](std::int64_t i, std::int64_t h, std::int64_t) {
    return i >= 130 && i <= 150 && h < 2;
  };
  expect_rule(&Inputs::k, {130, 0, kLast}, MaskSpec::window(20, 0), near, near);
}

TEST(CasesNan, ElementOfVReachesItsChannelInQueryTilesThatVisitItsKeyTile) {
  // Causal, key 130 is in key tile 1: query tiles from row 128 on visit it, rows 128 and 129 too.
  expect_rule(
      &Inputs::v, {130, 1, 5}, MaskSpec::causal(),
      [](std::int64_t i, std::int64_t h, std::int64_t c) { return i >= 128 && h >= 2 && c == 5; },
      nowhere);
  // Rows see 20 keys back: the query tile of rows 256 on starts at key 236, still in key tile 1.
  expect_rule(
      &Inputs::v, {130, 0, kLast}, MaskSpec::window(20, 0),
      [](std::int64_t i, std::int64_t h, std::int64_t c) {
        return i >= 128 && h < 2 && c == kLast;
      },
      nowhere);
}

TEST(CasesNan, ElementOfVReachesNoQueryTileThatSkipsItsKeyTile) {
  // Rows see themselves only: rows 128 to 255 visit key tile 1.
  expect_rule(
      &Inputs::v, {130, 1, 5}, MaskSpec::window(0, 0),
      [](std::int64_t i, std::int64_t h, std::int64_t c) {
        return i / 128 == 1 && h >= 2 && c == 5;
      },
      nowhere);
  // Rows see 20 keys ahead: query tiles from row 64 on visit key tile 1, though rows 64 to 107 see
  // none of its keys.
  expect_rule(
      &Inputs::v, {130, 1, 5}, MaskSpec::window(0, 20),
      [](std::int64_t i, std::int64_t h, std::int64_t c) {
        return i >= 64 && i < 256 && h >= 2 && c == 5;
      },
      nowhere);
}

TEST(CasesNan, ElementOfKSharesNothingBeyondItsTileUnderRotationAndSmoothing) {
  const Inputs x = normal_inputs(kExtents, 32);
  AttentionParams settings;
  settings.recipe = Recipe::fp8();
  settings.mask = MaskSpec::causal();
  settings.threads = kThreads;
  const Result without = run_with(x, &Inputs::k, {130, 1, 5}, 0.0f, settings);
  const Result with = run_with(x, &Inputs::k, {130, 1, 5}, kNan, settings);
  EXPECT_TRUE(identical(rows_of(with.out, 0, 128), rows_of(without.out, 0, 128)));
  // Rows 128 and 129 do not see key 130 but share its tile's scale.
  const Tensor got = rows_of(with.out, 128, 130), want = rows_of(without.out, 128, 130);
  EXPECT_TRUE(all_finite(got));
  EXPECT_TRUE(agrees(got, want, {0, 0.05}));
  EXPECT_TRUE(nan_only_where(rows_of(with.out, 130, 270), rows_of(without.out, 130, 270),
                             [](std::int64_t, std::int64_t h, std::int64_t) { return h >= 2; }));
}

TEST(CasesNan, ElementOfInt8OperandsReachesItsBlock) {
  const Inputs x = normal_inputs(kExtents, 35);
  const auto spoilt = [&](const char* recipe, Tensor Inputs::*operand, const IsHit& hit) {
    SCOPED_TRACE(recipe);
    AttentionParams settings;
    settings.recipe = parse_recipe(recipe);
    settings.mask = MaskSpec::causal();
    settings.threads = kThreads;
    const Result without = run_with(x, operand, {130, 1, 5}, 0.0f, settings);
    for (const float value : {kNan, kInfinity}) {
      const Result with = run_with(x, operand, {130, 1, 5}, value, settings);
      EXPECT_TRUE(nan_only_where(with.out, without.out, hit));
      EXPECT_TRUE(nan_only_where_lse(with.lse, without.lse, hit));
    }
  };
  const auto row = [](std::int64_t i, std::int64_t h, std::int64_t) { return i == 130 && h == 1; };
  const auto block = [](std::int64_t i, std::int64_t h, std::int64_t) {
    return i / 64 == 2 && h == 1;
  };
  const auto tiles = [](std::int64_t i, std::int64_t h, std::int64_t) {
    return i >= 128 && h >= 2;
  };
  const auto later = [](std::int64_t i, std::int64_t h, std::int64_t) {
    return i >= 130 && h >= 2;
  };
  spoilt("default", &Inputs::q, row);
  spoilt("block+int8", &Inputs::q, block);
  spoilt("block+int8", &Inputs::k, tiles);
  const auto head = [](std::int64_t, std::int64_t h, std::int64_t) { return h >= 2; };
  const auto all = [](std::int64_t, std::int64_t, std::int64_t) { return true; };
  spoilt("per_head+int8", &Inputs::k, head);
  spoilt("per_tensor+int8", &Inputs::q, all);
  spoilt("strict_causal+int8", &Inputs::k, later);  // descales per key
}

TEST(CasesNan, ReferenceCarriesElementsToAttendingRowsOnly) {
  const Inputs x = normal_inputs(kExtents, 33);
  AttentionParams settings;
  settings.mask = MaskSpec::causal();
  settings.threads = kThreads;
  const auto later = [](std::int64_t i, std::int64_t h, std::int64_t) {
    return i >= 130 && h >= 2;
  };
  for (Tensor Inputs::*operand : {&Inputs::k, &Inputs::v}) {
    const Result without = run_with(x, operand, {130, 1, 5}, 0.0f, settings, "reference");
    const Result with = run_with(x, operand, {130, 1, 5}, kNan, settings, "reference");
    const bool is_v = operand == &Inputs::v;
    EXPECT_TRUE(
        nan_only_where(with.out, without.out, [&](std::int64_t i, std::int64_t h, std::int64_t c) {
          return later(i, h, c) && (!is_v || c == 5);
        }));
    EXPECT_TRUE(nan_only_where_lse(with.lse, without.lse, is_v ? IsHit(nowhere) : IsHit(later)));
  }
}

TEST(CasesNan, NanCodeOfFp8OperandsFollowsTheSameRule) {
  Inputs plain = normal_inputs(kExtents, 34);
  const Inputs codes = quantised(plain.params(), Recipe::block());
  for (Tensor Inputs::*operand : {&Inputs::k, &Inputs::v}) {
    AttentionParams settings = Inputs(codes).params();
    Inputs with = codes, without = codes;
    (with.*operand).set((with.*operand).at(0, 130, 1, 5), kNan);
    (without.*operand).set((without.*operand).at(0, 130, 1, 5), 0.0f);
    AttentionParams a = with.params(), b = without.params();
    a.mask = b.mask = MaskSpec::causal();
    const bool is_v = operand == &Inputs::v;
    EXPECT_TRUE(nan_only_where(emulate(a).out, emulate(b).out,
                               [&](std::int64_t i, std::int64_t h, std::int64_t c) {
                                 return h >= 2 && (is_v ? i >= 128 && c == 5 : i >= 130);
                               }));
  }
}

}  // namespace
}  // namespace octavo::test
