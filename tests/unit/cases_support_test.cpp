// SPDX-License-Identifier: Apache-2.0
// The support table, enumerated: operand dtype x head dim x mask x recipe x softmax path x
// accumulator. Every entry runs to finite output, or is refused with a reason.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "octavo/engine.h"
#include "octavo/error.h"
#include "support/call.h"
#include "support/compare.h"
#include "support/recipes.h"
#include "support/sanitizer.h"

namespace octavo::test {
namespace {

struct MaskCase {
  const char* name;
  MaskSpec mask;
  std::vector<std::int64_t> key_lengths;
  float softcap = 0;
};

const std::vector<MaskCase>& mask_cases() {
  static const std::vector<MaskCase> cases = {
      {"none", MaskSpec::none(), {}},           {"causal", MaskSpec::causal(), {}},
      {"window", MaskSpec::window(130, 2), {}}, {"left window", MaskSpec::window(3, -1), {}},
      {"lengths", MaskSpec::none(), {131}},     {"softcap", MaskSpec::causal(), {}, 10.0f}};
  return cases;
}

/// The one refusal of the emulation, and its reason.
const std::string kFoldedDirect =
    "softmax is direct; must be exact where v has a descale per token (recipe strict_causal), "
    "which only an exact P can take in";

struct Tally {
  int ran = 0, refused = 0;
};

/// One entry: what why_unsupported says is what happens.
void expect_entry(AttentionParams params, bool v_per_token, Tally& tally) {
  const bool folded_direct = params.softmax == SoftmaxPath::direct && v_per_token;
  Tensor out(DType::bf16, {1, params.q.shape[1], 2, params.v.shape[3]});
  params.out = out.view();
  const std::string reason = why_unsupported(params, "emulate");
  EXPECT_EQ(reason, folded_direct ? kFoldedDirect : "");
  EXPECT_EQ(why_unsupported(params, "reference"), "");
  if (reason.empty()) {
    const Result got = emulate(params, DType::bf16);
    EXPECT_TRUE(all_finite(got.out));
    EXPECT_TRUE(all_finite(got.lse));
    ++tally.ran;
    return;
  }
  const std::string sm90 = "sm90: " + why_unsupported(params, "sm90") + "; ";
  for (const char* engine : {"auto", "emulate"}) {
    try {
      run(params, engine);
      ADD_FAILURE() << "ran although refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_EQ(std::string(error.what()), "attention_forward: no engine computes this call: " +
                                               (engine == std::string("auto") ? sm90 : "") +
                                               "emulate: " + reason);
    }
  }
  EXPECT_EQ(run(params, "reference").stats.engine, "reference");
  ++tally.refused;
}

/// All masks, paths and accumulators of one set of operands.
void expect_row(const AttentionParams& operands, bool v_per_token, Tally& tally) {
  for (const MaskCase& mask : mask_cases()) {
    for (const SoftmaxPath path : {SoftmaxPath::exact, SoftmaxPath::direct}) {
      for (const Accumulator model : {Accumulator::hopper, Accumulator::fp32}) {
        SCOPED_TRACE(testing::Message()
                     << mask.name << ", " << softmax_name(path) << ", " << accumulator_name(model));
        AttentionParams params = operands;
        params.mask = mask.mask;
        params.key_lengths = mask.key_lengths;
        params.softcap = mask.softcap;
        params.softmax = path;
        params.accumulator = model;
        params.threads = 1;
        expect_entry(params, v_per_token, tally);
      }
    }
  }
}

std::vector<std::string> table_recipes() {
  std::vector<std::string> names = recipe_names();
  for (const char* more : {"block+e5m2", "block+smooth", "strict_causal+e5m2"}) {
    names.emplace_back(more);
  }
  return names;
}

constexpr std::int64_t kTableDims[] = {40, 64, 96, 128, 192, 256};

Inputs table_inputs(std::int64_t d, DType dtype) {
  return normal_inputs({.sq = 3, .sk = 133, .hq = 2, .hkv = 1, .d = d, .dv = d}, 101, dtype);
}

TEST(CasesSupport, EveryEntryOf16And32BitOperandsRunsOrIsRefusedWithItsReason) {
  Tally tally;
  int operands = 0;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t d : kTableDims) {
      if (kSanitized && dtype != DType::bf16 && d != 96) continue;
      ++operands;
      Inputs x = table_inputs(d, dtype);
      for (const std::string& name : table_recipes()) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", d " << d << ", " << name);
        const Recipe recipe = parse_recipe(name);
        expect_row(x.params(recipe), recipe.v == Granularity::token, tally);
      }
    }
  }
  EXPECT_EQ(operands, kSanitized ? 8 : 3 * 6);
  EXPECT_EQ(tally.ran + tally.refused, operands * 9 * 6 * 2 * 2);
  EXPECT_EQ(tally.refused, operands * 2 * 6 * 2);
}

TEST(CasesSupport, EveryEntryOfFp8OperandsRunsOrIsRefusedWithItsReason) {
  Tally tally;
  for (const std::int64_t d : kTableDims) {
    Inputs x = table_inputs(d, DType::bf16);
    for (const std::string& name : table_recipes()) {
      SCOPED_TRACE(testing::Message() << "d " << d << ", quantised by " << name);
      const Recipe recipe = parse_recipe(name);
      Inputs codes = quantised(x.params(), recipe);
      expect_row(codes.params(), recipe.v == Granularity::token, tally);
    }
  }
  EXPECT_EQ(tally.ran + tally.refused, 6 * 9 * 6 * 2 * 2);
  EXPECT_EQ(tally.refused, 6 * 2 * 6 * 2);
}

TEST(CasesSupport, OperandsOfMixedDtypesRunWithinTheErrorOfFp8) {
  Inputs x = normal_inputs({.sq = 70, .sk = 200, .hq = 2, .hkv = 1}, 102);
  const Inputs codes = quantised(x.params(), Recipe::block());
  const Result want = reference(x.params());
  for (const int fp8 : {0b001, 0b010, 0b100, 0b011, 0b101, 0b110}) {  // q, k, v
    SCOPED_TRACE(fp8);
    Inputs mixed = x;
    if (fp8 & 1) mixed.q = codes.q, mixed.q_descale = codes.q_descale;
    if (fp8 & 2) mixed.k = codes.k, mixed.k_descale = codes.k_descale;
    if (fp8 & 4) mixed.v = codes.v, mixed.v_descale = codes.v_descale;
    EXPECT_TRUE(agrees(emulate(mixed.params()).out, want.out, {0.04, 0.065}));
    EXPECT_TRUE(identical(emulate(mixed.params()).out, emulate(x.params(Recipe::block())).out));
  }
}

TEST(CasesSupport, QuantisingBeforehandGivesTheBitsOfQuantisingInside) {
  const std::int64_t sq = kSanitized ? 70 : 150, sk = kSanitized ? 140 : 300;
  Inputs x = normal_inputs({.b = 2, .sq = sq, .sk = sk, .hq = 4, .hkv = 2, .d = 72, .dv = 40}, 103);
  for (const std::string& name : table_recipes()) {
    for (const float softcap : {0.0f, 5.0f}) {
      SCOPED_TRACE(name);
      AttentionParams inside = x.params(parse_recipe(name));
      inside.softcap = softcap;
      inside.sm_scale = 0.125f;  // rotated codes have the padded head dim, and its default
      Inputs codes = quantised(x.params(), parse_recipe(name));
      AttentionParams before = codes.params();
      before.softcap = softcap;
      before.sm_scale = inside.sm_scale;
      const Result a = emulate(inside), b = emulate(before);
      EXPECT_TRUE(identical(b.out, a.out));
      EXPECT_TRUE(identical(b.lse, a.lse));
    }
  }
}

}  // namespace
}  // namespace octavo::test
