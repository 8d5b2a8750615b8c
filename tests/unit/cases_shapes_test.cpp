// SPDX-License-Identifier: Apache-2.0
// Head dims, heads that share keys, and which keys a row sees, row by row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "octavo/engine.h"
#include "octavo/error.h"
#include "support/call.h"
#include "support/compare.h"
#include "support/recipes.h"

namespace octavo::test {
namespace {

const Bounds kBounds = normal_bounds(Recipe::standard());

// ---- Head dims

TEST(CasesShapes, HeadDimsInBetweenArePaddedInside) {
  for (const std::int64_t d : {40, 64, 72, 80, 96, 112, 128, 160, 192, 256}) {
    Inputs x = normal_inputs({.sq = 70, .sk = 200, .hq = 2, .d = d, .dv = d}, 81);
    const Result want = reference(x.params());
    for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
      SCOPED_TRACE(testing::Message() << "d " << d);
      AttentionParams params = x.params(recipe);
      params.softmax = path;
      EXPECT_TRUE(agrees(emulate(params).out, want.out, normal_bounds(recipe)));
    });
  }
}

TEST(CasesShapes, HeadDimOfValuesMayDiffer) {
  for (const auto& [d, dv] :
       {std::pair<std::int64_t, std::int64_t>{192, 128}, {64, 256}, {256, 8}, {8, 96}}) {
    SCOPED_TRACE(testing::Message() << "d " << d << ", dv " << dv);
    Inputs x = normal_inputs({.sq = 70, .sk = 200, .hq = 2, .hkv = 1, .d = d, .dv = dv}, 82);
    const Result want = reference(x.params());
    EXPECT_EQ(want.out.extent(3), dv);
    EXPECT_TRUE(agrees(emulate(x.params()).out, want.out, kBounds));
  }
}

TEST(CasesShapes, OtherHeadDimsAreRefusedWithTheListOfThoseThatRun) {
  for (const auto& [d, dv] : {std::pair<std::int64_t, std::int64_t>{576, 512},
                              {264, 128},
                              {128, 264},
                              {100, 128},
                              {128, 4}}) {
    SCOPED_TRACE(testing::Message() << "d " << d << ", dv " << dv);
    Inputs x = normal_inputs({.sq = 2, .sk = 2, .d = d, .dv = dv}, 83);
    try {
      emulate(x.params());
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      const std::string sentence = error.what();
      EXPECT_NE(sentence.find("be a multiple of 8 from 8 to 256 (64, 96, 128, 192 and 256"),
                std::string::npos)
          << sentence;
    }
  }
}

// ---- Heads that share keys

/// One query head of a call, against its key head alone.
Inputs single_head(const Inputs& x, std::int64_t h) {
  const std::int64_t group = x.q.extent(2) / x.k.extent(2);
  const auto take = [](const Tensor& from, std::int64_t head) {
    Tensor to(from.dtype(), {from.extent(0), from.extent(1), 1, from.extent(3)});
    for (std::int64_t b = 0; b < from.extent(0); ++b) {
      for (std::int64_t s = 0; s < from.extent(1); ++s) {
        for (std::int64_t c = 0; c < from.extent(3); ++c) {
          to.set(to.at(b, s, 0, c), from.get(from.at(b, s, head, c)));
        }
      }
    }
    return to;
  };
  return {take(x.q, h), take(x.k, h / group), take(x.v, h / group), {}, {}, {}, {}};
}

Tensor head_of(const Tensor& out, std::int64_t h) {
  Inputs x{out, out, out, {}, {}, {}, {}};
  return single_head(x, h).q;
}

TEST(CasesShapes, QueryHeadsEqualCallsOfTheirOwnUpToTheBit) {
  for (const std::int64_t hkv : {1, 2, 4, 8}) {
    Inputs x = normal_inputs({.b = 2, .sq = 70, .sk = 150, .hq = 8, .hkv = hkv}, 84);
    for (const char* engine : {"emulate", "reference"}) {
      const Result all = run(x.params(), engine);
      for (std::int64_t h = 0; h < 8; ++h) {
        SCOPED_TRACE(testing::Message() << engine << ", hkv " << hkv << ", head " << h);
        Inputs one = single_head(x, h);
        EXPECT_TRUE(identical(head_of(all.out, h), run(one.params(), engine).out));
      }
    }
  }
}

TEST(CasesShapes, QueryHeadsOfAnyMagnitudeAreEachRight) {
  Inputs x = normal_inputs({.sq = 70, .sk = 300, .hq = 8, .hkv = 2}, 85, DType::f32);
  for (std::int64_t i = 0; i < x.q.numel(); ++i) {
    const auto head = static_cast<int>(i / 128 % 8);
    x.q.set(i, x.q.get(i) * std::pow(10.0f, static_cast<float>(head)));
  }
  for (const char* name : {"per_head", "block", "default", "strict_causal"}) {
    AttentionParams params = x.params(parse_recipe(name));
    params.sm_scale = 1e-7f / 11.3f;  // head 7 scores N(0, 1), head 0 nothing
    const Result want = reference(params), got = emulate(params);
    for (std::int64_t h = 0; h < 8; ++h) {
      SCOPED_TRACE(testing::Message() << name << ", head " << h);
      EXPECT_TRUE(agrees(head_of(got.out, h), head_of(want.out, h), {0.015, 0.065}));
    }
  }
}

// ---- Which keys a row sees

/// Row i of a call against keys [first, last) alone, without any mask.
Result row_alone(const AttentionParams& params, std::int64_t i, std::int64_t first,
                 std::int64_t last, const char* engine) {
  AttentionParams one = params;
  one.mask = MaskSpec::none();
  one.q.data = row_pointer(params.q, 0, i, 0);
  one.q.shape[1] = 1;
  one.k.data = row_pointer(params.k, 0, first, 0);
  one.v.data = row_pointer(params.v, 0, first, 0);
  one.k.shape[1] = one.v.shape[1] = last - first;
  return run(one, engine);
}

TEST(CasesShapes, CausalRowsOfTheReferenceSeeKeysUpToTheirOwnPosition) {
  for (const std::int64_t sq : {1, 2, 63, 64}) {
    Inputs x = normal_inputs({.sq = sq, .sk = 1000, .d = 64, .dv = 64}, 86);
    AttentionParams params = x.params();
    params.mask = MaskSpec::causal();
    const Result all = reference(params);
    for (std::int64_t i = 0; i < sq; ++i) {
      const Result row = row_alone(params, i, 0, 1000 - sq + i + 1, "reference");
      EXPECT_TRUE(identical(rows_of(all.out, i, i + 1), row.out)) << "row " << i << " of " << sq;
    }
  }
}

/// Under per-token scales a row does not depend on keys it does not see: bit for bit the same.
TEST(CasesShapes, CausalRowsOfTheEmulationSeeKeysUpToTheirOwnPosition) {
  Inputs x = normal_inputs({.sq = 64, .sk = 1000, .d = 64, .dv = 64}, 87);
  AttentionParams params = x.params(Recipe::strict_causal());
  params.mask = MaskSpec::causal();
  const Result all = emulate(params);
  for (std::int64_t i = 0; i < 64; ++i) {
    const Result row = row_alone(params, i, 0, 1000 - 64 + i + 1, "emulate");
    EXPECT_TRUE(identical(rows_of(all.out, i, i + 1), row.out)) << "row " << i;
  }
}

TEST(CasesShapes, CausalQueriesOfEveryNumberAlignWithTheLastKeys) {
  Inputs x = normal_inputs({.sq = 64, .sk = 1000, .d = 64, .dv = 64}, 88);
  for (std::int64_t sq = 1; sq <= 64; ++sq) {
    AttentionParams params = x.params();
    params.q.shape[1] = sq;
    params.mask = MaskSpec::causal();
    EXPECT_TRUE(agrees(emulate(params).out, reference(params).out, kBounds)) << "sq " << sq;
  }
}

TEST(CasesShapes, SingleCausalQuerySeesEveryKey) {
  Inputs x = normal_inputs({.sq = 1, .sk = 1000}, 89);
  for (const char* engine : {"emulate", "reference"}) {
    AttentionParams causal = x.params(), none = x.params();
    causal.mask = MaskSpec::causal();
    EXPECT_TRUE(identical(run(causal, engine).out, run(none, engine).out)) << engine;
  }
}

TEST(CasesShapes, EveryRowOfAShortWindowIsRight) {
  constexpr std::int64_t kSq = 8, kSk = 3000;
  Inputs x = normal_inputs({.sq = kSq, .sk = kSk, .hq = 2, .hkv = 1}, 90);
  for (const auto& [left, right] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                                    {16, 0},
                                    {100, 3},
                                    {2, 2},
                                    {-1, 1},
                                    {300, -1}}) {
    AttentionParams params = x.params(Recipe::block());
    params.mask = MaskSpec::window(left, right);
    const Result want = reference(params), got = emulate(params);
    for (std::int64_t i = 0; i < kSq; ++i) {
      SCOPED_TRACE(testing::Message() << "window " << left << ", " << right << ", row " << i);
      const std::int64_t position = i + kSk - kSq;
      const std::int64_t first = left < 0 ? 0 : position - left;
      const std::int64_t last = right < 0 ? kSk : std::min(position + right + 1, kSk);
      const Result row = row_alone(params, i, first, last, "reference");
      EXPECT_TRUE(identical(rows_of(want.out, i, i + 1), row.out));
      EXPECT_TRUE(agrees(rows_of(got.out, i, i + 1), row.out, {0.015, 0.1}));
    }
  }
}

TEST(CasesShapes, WindowWiderThanTheKeysHidesNothing) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  Inputs x = normal_inputs({.sq = 70, .sk = 150}, 92);
  const auto result = [&](const MaskSpec& mask, const char* engine) {
    AttentionParams params = x.params();
    params.mask = mask;
    return run(params, engine).out;
  };
  for (const char* engine : {"emulate", "reference"}) {
    for (const std::int64_t wide : {std::int64_t{150}, kMost}) {
      EXPECT_TRUE(identical(result(MaskSpec::window(wide, wide), engine),
                            result(MaskSpec::none(), engine)));
      EXPECT_TRUE(
          identical(result(MaskSpec::window(wide, 0), engine), result(MaskSpec::causal(), engine)));
    }
    EXPECT_FALSE(
        identical(result(MaskSpec::window(148, 0), engine), result(MaskSpec::causal(), engine)));
  }
}

// ---- Which engine runs

TEST(CasesDispatch, EveryEngineIsAskedInOrderAndSaysWhyNot) {
  Inputs x = normal_inputs({.sq = 5, .sk = 9}, 91);
  AttentionParams params = x.params();
  Tensor out(DType::bf16, {1, 5, 1, 128});
  params.out = out.view();
  const std::vector<EngineVerdict> verdicts = explain_dispatch(params);
  ASSERT_EQ(verdicts.size(), engine_names().size());
  std::string chosen;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    EXPECT_EQ(verdicts[i].name, engine_names()[i]);
    EXPECT_FALSE(verdicts[i].reason.empty());
    const std::string why = why_unsupported(params, verdicts[i].name);
    EXPECT_EQ(why.empty(), verdicts[i].accepts);
    if (!verdicts[i].accepts) {
      EXPECT_EQ(why, verdicts[i].reason);
    }
    EXPECT_EQ(verdicts[i].automatic, verdicts[i].name != "reference");
    if (verdicts[i].accepts && verdicts[i].automatic && chosen.empty()) chosen = verdicts[i].name;
  }
  EXPECT_EQ(engine_names(), (std::vector<std::string>{"sm90", "emulate", "reference"}));
  EXPECT_FALSE(verdicts[0].accepts) << "host memory";
  EXPECT_EQ(attention_forward(params).engine, chosen);
  EXPECT_EQ(chosen, "emulate");
}

TEST(CasesDispatch, VerboseDispatchSaysEveryRefusalAndWhatRuns) {
  Inputs x = normal_inputs({.sq = 5, .sk = 9}, 93);
  AttentionParams params = x.params();
  Tensor out(DType::bf16, {1, 5, 1, 128});
  params.out = out.view();
  const auto printed = [&](const char* topics) {
    setenv("OCTAVO_VERBOSE", topics, 1);
    testing::internal::CaptureStderr();
    attention_forward(params);
    unsetenv("OCTAVO_VERBOSE");
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(printed("dispatch"), "octavo dispatch: sm90: " + why_unsupported(params, "sm90") +
                                     "\noctavo dispatch: emulate: runs\n");
  // A value that means nothing is named once.
  EXPECT_EQ(printed("other"), "octavo: OCTAVO_VERBOSE is 'other'; must be dispatch, or unset\n");
  EXPECT_EQ(printed("other"), "");
  EXPECT_EQ(printed(""), "");
}

TEST(CasesDispatch, SimdTargetsAreNamedAndAtLeastOneRuns) {
  std::vector<std::string> targets = simd_targets();
  ASSERT_FALSE(targets.empty());
  for (const std::string& target : targets) EXPECT_FALSE(target.empty());
  std::sort(targets.begin(), targets.end());
  EXPECT_EQ(std::unique(targets.begin(), targets.end()), targets.end());
}

}  // namespace
}  // namespace octavo::test
