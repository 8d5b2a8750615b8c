// SPDX-License-Identifier: Apache-2.0
// Every sentence with which a call can be refused, word for word; and a refused call writes
// nothing.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "octavo/error.h"
#include "support/call.h"

namespace octavo::test {
namespace {

/// A call that is right in every way, to be spoiled in one.
struct Call {
  Inputs x;
  Tensor out, lse;
  AttentionParams params;

  explicit Call(Inputs inputs)
      : x(std::move(inputs)),
        out(DType::bf16, {2, 5, 4, 32}),
        lse(DType::f32, {2, 4, 5}),
        params(x.params()) {
    out.poison();
    lse.poison();
    params.out = out.view();
    params.lse = lse.view();
  }
};

Inputs plain_inputs() {
  return normal_inputs({.b = 2, .sq = 5, .sk = 7, .hq = 4, .hkv = 2, .d = 64, .dv = 32}, 111);
}

Inputs fp8_inputs() {
  Inputs x = plain_inputs();
  return quantised(x.params(), parse_recipe("block+smooth"));
}

struct Refusal {
  const char* name;
  std::function<void(Call&)> spoil;
  std::string sentence;  ///< behind "attention_forward: "
  ErrorCode code = ErrorCode::invalid_argument;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

void expect_refusal(const Refusal& refusal, const Inputs& inputs) {
  Call call(inputs);
  refusal.spoil(call);
  try {
    attention_forward(call.params);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "attention_forward: " + refusal.sentence);
    EXPECT_EQ(error.code(), refusal.code);
  }
  EXPECT_TRUE(call.out.is_poisoned());
  EXPECT_TRUE(call.lse.is_poisoned());
}

using P = AttentionParams;
constexpr std::int64_t kHuge = std::int64_t{1} << 40;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const std::string kHeadDims =
    "; must be a multiple of 8 from 8 to 256 (64, 96, 128, 192 and 256 run unpadded)";

std::vector<Refusal> view_refusals() {
  return {
      {"RankOfQ", [](Call& c) { c.params.q.rank = 3; }, "q.rank is 3; must be 4"},
      {"RankOfK", [](Call& c) { c.params.k.rank = 0; }, "k.rank is 0; must be 4"},
      {"RankOfV", [](Call& c) { c.params.v.rank = 2; }, "v.rank is 2; must be 4"},
      {"RankOfOut", [](Call& c) { c.params.out.rank = 0; }, "out.rank is 0; must be 4"},
      {"RankOfLse", [](Call& c) { c.params.lse.rank = 4; }, "lse.rank is 4; must be 3"},
      {"NegativeExtent", [](Call& c) { c.params.q.shape[1] = -1; },
       "q.shape[1] is -1; must be from 0 to 2^40"},
      {"ExtentTooLarge", [](Call& c) { c.params.k.shape[0] = kHuge + 1; },
       "k.shape[0] is 1099511627777; must be from 0 to 2^40"},
      {"NegativeStride", [](Call& c) { c.params.v.stride[2] = -32; },
       "v.stride[2] is -32; must not be negative"},
      {"ElementsOverflow",
       [](Call& c) {
         c.params.q.shape = {kHuge, kHuge, 4, 64};
         c.params.q.stride = {0, 0, 64, 1};
       },
       "q.shape is [1099511627776, 1099511627776, 4, 64]; its extent must fit 63 bits"},
      {"ReachOverflows", [](Call& c) { c.params.q.stride[0] = std::int64_t{1} << 60; },
       "q.shape is [2, 5, 4, 64]; its extent must fit 63 bits"},
      {"NullQ", [](Call& c) { c.params.q.data = nullptr; },
       "q.data is null; must point to 2560 elements"},
      {"NullOut", [](Call& c) { c.params.out.data = nullptr; },
       "out.data is null; must point to 1280 elements"},
      {"NullLse", [](Call& c) { c.params.lse.data = nullptr; },
       "lse.data is null; must point to 40 elements"},
      {"LastStrideOfQ", [](Call& c) { c.params.q.stride[3] = 2; },
       "q.stride[3] is 2; must be 1 (a contiguous last dimension)"},
      {"LastStrideOfK", [](Call& c) { c.params.k.stride[3] = 0; },
       "k.stride[3] is 0; must be 1 (a contiguous last dimension)"},
      {"LastStrideOfV", [](Call& c) { c.params.v.stride[3] = 7; },
       "v.stride[3] is 7; must be 1 (a contiguous last dimension)"},
      {"LastStrideOfOut", [](Call& c) { c.params.out.stride[3] = 2; },
       "out.stride[3] is 2; must be 1 (a contiguous last dimension)"},
      {"OverlappingOut", [](Call& c) { c.params.out.stride[0] = 0; },
       "out.stride[0] is 0; must be at least 1, or elements would overlap"},
      {"OverlappingRowsOfOut", [](Call& c) { c.params.out.stride[2] = 31; },
       "out.stride[2] is 31; must be at least 32, or elements would overlap"},
      {"OverlappingLse", [](Call& c) { c.params.lse.stride[1] = 3; },
       "lse.stride[1] is 3; must be at least 5, or elements would overlap"},
  };
}

std::vector<Refusal> shape_refusals() {
  return {
      {"HeadDimNoMultipleOf8", [](Call& c) { c.params.q.shape[3] = c.params.k.shape[3] = 36; },
       "q.shape[3] is 36" + kHeadDims},
      {"HeadDimOf0", [](Call& c) { c.params.q.shape[3] = c.params.k.shape[3] = 0; },
       "q.shape[3] is 0" + kHeadDims},
      {"HeadDimTooLarge", [](Call& c) { c.params.q.shape[3] = c.params.k.shape[3] = 576; },
       "q.shape[3] is 576" + kHeadDims},
      {"ValueHeadDim", [](Call& c) { c.params.v.shape[3] = 512; }, "v.shape[3] is 512" + kHeadDims},
      {"HeadDimsDiffer", [](Call& c) { c.params.k.shape[3] = 56; },
       "k.shape[3] is 56; must equal q.shape[3] (64)"},
      {"BatchOfK", [](Call& c) { c.params.k.shape[0] = 1; },
       "k.shape[0] is 1; must equal q.shape[0] (2)"},
      {"BatchOfV", [](Call& c) { c.params.v.shape[0] = 3; },
       "v.shape[0] is 3; must equal q.shape[0] (2)"},
      {"KeysOfV", [](Call& c) { c.params.v.shape[1] = 6; },
       "v.shape[1] is 6; must equal k.shape[1] (7)"},
      {"HeadsOfV", [](Call& c) { c.params.v.shape[2] = 1; },
       "v.shape[2] is 1; must equal k.shape[2] (2)"},
      {"HeadsOfQ", [](Call& c) { c.params.q.shape[2] = 3; },
       "q.shape[2] is 3; must be a multiple of k.shape[2] (2)"},
      {"NoHeadsOfK", [](Call& c) { c.params.k.shape[2] = c.params.v.shape[2] = 0; },
       "k.shape[2] is 0; must be at least 1"},
      {"QueriesInE5m2", [](Call& c) { c.params.q.dtype = DType::f8_e5m2; },
       "q.dtype is f8_e5m2; must be f32, f16, bf16, f8_e4m3 or i8"},
      {"DeviceOfK",
       [](Call& c) {
         c.params.k.device = {Device::Kind::cuda, 0};
       },
       "device of k or v is another; must be the device of q"},
      {"DeviceOfV", [](Call& c) { c.params.v.device.index = 1; },
       "device of k or v is another; must be the device of q"},
      {"BatchOfOut", [](Call& c) { c.params.out.shape[0] = 1; },
       "out.shape[0] is 1; must equal q.shape[0] (2)"},
      {"RowsOfOut", [](Call& c) { c.params.out.shape[1] = 4; },
       "out.shape[1] is 4; must equal q.shape[1] (5)"},
      {"HeadsOfOut", [](Call& c) { c.params.out.shape[2] = 2; },
       "out.shape[2] is 2; must equal q.shape[2] (4)"},
      {"HeadDimOfOut", [](Call& c) { c.params.out.shape[3] = 24; },
       "out.shape[3] is 24; must equal v.shape[3] (32)"},
      {"DtypeOfOut", [](Call& c) { c.params.out.dtype = DType::f8_e4m3; },
       "out.dtype is f8_e4m3; must be f32, f16 or bf16"},
      {"DtypeOfLse", [](Call& c) { c.params.lse.dtype = DType::bf16; },
       "lse.dtype is bf16; must be f32"},
      {"BatchOfLse", [](Call& c) { c.params.lse.shape[0] = 1; },
       "lse.shape[0] is 1; must equal q.shape[0] (2)"},
      {"HeadsOfLse", [](Call& c) { c.params.lse.shape[1] = 2; },
       "lse.shape[1] is 2; must equal q.shape[2] (4)"},
      {"RowsOfLse", [](Call& c) { c.params.lse.shape[2] = 4; },
       "lse.shape[2] is 4; must equal q.shape[1] (5)"},
  };
}

std::vector<Refusal> value_refusals() {
  return {
      {"ZeroScale", [](Call& c) { c.params.sm_scale = 0.0f; },
       "sm_scale is 0; must be positive and finite"},
      {"NegativeScale", [](Call& c) { c.params.sm_scale = -0.5f; },
       "sm_scale is -0.5; must be positive and finite"},
      {"InfiniteScale", [](Call& c) { c.params.sm_scale = kInfinity; },
       "sm_scale is inf; must be positive and finite"},
      {"NanScale", [](Call& c) { c.params.sm_scale = kNan; },
       "sm_scale is nan; must be positive and finite"},
      {"NegativeSoftcap", [](Call& c) { c.params.softcap = -1; },
       "softcap is -1; must be 0 (off) or positive and finite"},
      {"NanSoftcap", [](Call& c) { c.params.softcap = kNan; },
       "softcap is nan; must be 0 (off) or positive and finite"},
      {"LeftOfMask", [](Call& c) { c.params.mask.left = -2; },
       "mask.left is -2; must be -1 (unlimited) or a number of keys"},
      {"RightOfMask", [](Call& c) { c.params.mask.right = -3; },
       "mask.right is -3; must be -1 (unlimited) or a number of keys"},
      {"NegativePromotion", [](Call& c) { c.params.promote_every = -1; },
       "promote_every is -1; must be a number of key tiles, or 0 for never"},
      {"NoSplits", [](Call& c) { c.params.num_splits = 0; }, "num_splits is 0; must be 1 to 64"},
      {"TooManySplits", [](Call& c) { c.params.num_splits = 65; },
       "num_splits is 65; must be 1 to 64"},
      {"NegativeThreads", [](Call& c) { c.params.threads = -2; },
       "threads is -2; must be 0 (one per core) or positive"},
      {"NumberOfLengths", [](Call& c) { c.params.key_lengths = {7}; },
       "key_lengths.size is 1; must equal the batch (2)"},
      {"NegativeLength",
       [](Call& c) {
         c.params.key_lengths = {7, -1};
       },
       "key_lengths[1] is -1; must be from 0 to k.shape[1] (7)"},
      {"LengthPastTheKeys",
       [](Call& c) {
         c.params.key_lengths = {8, 7};
       },
       "key_lengths[0] is 8; must be from 0 to k.shape[1] (7)"},
      {"FormatOfRecipe",
       [](Call& c) {
         c.params.recipe = Recipe::block();
         c.params.recipe->kv_format = DType::bf16;
       },
       "recipe.kv_format is bf16; must be f8_e4m3 or f8_e5m2"},
  };
}

std::vector<Refusal> choice_refusals() {
  return {
      {"DescaleOf16Bits",
       [](Call& c) {
         c.x.q_descale = Tensor(DType::f32, {1});
         c.params.q_descale = c.x.q_descale.view();
       },
       "q_descale is given; must be left out, since q is bf16, which the recipe quantises"},
      {"ShiftOf16Bits", [](Call& c) { c.params.score_shift = c.params.lse; },
       "score_shift is given; must be left out unless q and k are quantised already"},
      {"UnknownEngine", [](Call& c) { c.params.engine = "tpu"; },
       "engine is 'tpu'; must be one of auto, sm90, emulate, reference"},
      {"DirectWithFoldedV",
       [](Call& c) {
         c.params.recipe = Recipe::strict_causal();
         c.params.softmax = SoftmaxPath::direct;
         c.params.engine = "emulate";
       },
       "no engine computes this call: emulate: softmax is direct; must be exact where v has a "
       "descale per token (recipe strict_causal), which only an exact P can take in",
       ErrorCode::unsupported},
  };
}

/// A call at a precision of 16 bits, spoiled.
template <Precision kPrecision = Precision::bf16>
std::function<void(Call&)> in_16_bits(const std::function<void(Call&)>& spoil) {
  return [spoil](Call& c) {
    c.params.precision = kPrecision;
    spoil(c);
  };
}

std::vector<Refusal> precision_refusals() {
  return {
      {"QInFp16", in_16_bits([](Call& c) { c.params.q.dtype = DType::f16; }),
       "q.dtype is f16; must be bf16 where precision is bf16"},
      {"KInFp16", in_16_bits([](Call& c) { c.params.k.dtype = DType::f16; }),
       "k.dtype is f16; must be bf16 where precision is bf16"},
      {"VInFp16", in_16_bits([](Call& c) { c.params.v.dtype = DType::f16; }),
       "v.dtype is f16; must be bf16 where precision is bf16"},
      {"QInBf16", in_16_bits<Precision::fp16>([](Call&) {}),
       "q.dtype is bf16; must be f16 where precision is fp16"},
      {"RecipeOf16Bits", in_16_bits([](Call& c) { c.params.recipe = Recipe::fp8(); }),
       "recipe is fp8; must be left out where precision is bf16"},
      {"RopeOf16Bits", in_16_bits([](Call& c) { c.params.rope = Rope(); }),
       "rope is given; must be left out where precision is bf16"},
      {"DirectIn16Bits", in_16_bits([](Call& c) { c.params.softmax = SoftmaxPath::direct; }),
       "softmax is direct; must be exact where precision is bf16"},
      {"PromotionIn16Bits", in_16_bits([](Call& c) { c.params.promote_every = 0; }),
       "promote_every is 0; must be 1 where precision is bf16"},
  };
}

std::vector<Refusal> precision_of_fp8_refusals() {
  return {
      {"CodesIn16Bits", in_16_bits<Precision::fp16>([](Call&) {}),
       "q.dtype is f8_e4m3; must be f16 where precision is fp16"},
  };
}

/// A float tensor in place of an operand's descale.
template <TensorView P::*kDescale>
std::function<void(Call&)> descale_of(std::vector<std::int64_t> shape, DType dtype = DType::f32) {
  return [shape, dtype](Call& c) {
    c.x.score_shift = Tensor(dtype, shape);  // owns the memory; not passed itself
    c.params.*kDescale = c.x.score_shift.view();
    c.params.score_shift = {};
  };
}

void spoil_last(Tensor& descale, float value) { descale.set(descale.numel() - 1, value); }

std::vector<Refusal> fp8_refusals() {
  const std::string query_rule =
      "; must have shape [h], [b, h], [b, h, blocks] or [b, h, rows] with b 2, h 4 or 2, blocks 1, "
      "1, rows 5, any of them 1 to broadcast";
  const std::string key_rule =
      "; must have shape [h], [b, h], [b, h, blocks] or [b, h, rows] with b 2, h 2, blocks 1, rows "
      "7, any of them 1 to broadcast";
  return {
      {"MissingQDescale", [](Call& c) { c.params.q_descale = {}; },
       "q_descale is missing; must be given, since q is f8_e4m3 (a descale of 1 is never assumed)"},
      {"MissingKDescale", [](Call& c) { c.params.k_descale = {}; },
       "k_descale is missing; must be given, since k is f8_e4m3 (a descale of 1 is never assumed)"},
      {"MissingVDescale",
       [](Call& c) {
         c.params.v.dtype = DType::f8_e5m2;
         c.params.v_descale = {};
       },
       "v_descale is missing; must be given, since v is f8_e5m2 (a descale of 1 is never assumed)"},
      {"RankOfDescale", descale_of<&P::q_descale>({1, 1, 1, 1}),
       "q_descale.rank is 4; must be 1, 2 or 3"},
      {"DtypeOfDescale", descale_of<&P::k_descale>({1}, DType::f16),
       "k_descale.dtype is f16; must be f32"},
      {"NullDescale", [](Call& c) { c.params.k_descale.data = nullptr; },
       "k_descale.data is null; must point to 4 elements"},
      {"NegativeDescaleStride", [](Call& c) { c.params.v_descale.stride[1] = -1; },
       "v_descale.stride[1] is -1; must not be negative"},
      {"HeadsOfQDescale", descale_of<&P::q_descale>({3}), "q_descale.shape is [3]" + query_rule},
      {"BatchOfKDescale", descale_of<&P::k_descale>({3, 2}),
       "k_descale.shape is [3, 2]" + key_rule},
      {"BlocksOfVDescale", descale_of<&P::v_descale>({2, 2, 6}),
       "v_descale.shape is [2, 2, 6]" + key_rule},
      {"NanInDescale", [](Call& c) { spoil_last(c.x.k_descale, kNan); },
       "an element of k_descale is nan; must be finite and not negative"},
      {"InfinityInDescale", [](Call& c) { spoil_last(c.x.q_descale, kInfinity); },
       "an element of q_descale is inf; must be finite and not negative"},
      {"NegativeDescale", [](Call& c) { spoil_last(c.x.v_descale, -2.0f); },
       "an element of v_descale is -2; must be finite and not negative"},
      {"RecipeOfFp8", [](Call& c) { c.params.recipe = Recipe::per_head(); },
       "recipe is per_head; must be left out, since q, k and v are quantised already"},
      {"RankOfShift", [](Call& c) { c.params.score_shift.rank = 2; },
       "score_shift.rank is 2; must be 3"},
      {"DtypeOfShift", [](Call& c) { c.params.score_shift.dtype = DType::f16; },
       "score_shift.dtype is f16; must be f32"},
      {"BatchOfShift", [](Call& c) { c.params.score_shift.shape[0] = 1; },
       "score_shift.shape[0] is 1; must equal q.shape[0] (2)"},
      {"HeadsOfShift", [](Call& c) { c.params.score_shift.shape[1] = 2; },
       "score_shift.shape[1] is 2; must equal q.shape[2] (4)"},
      {"RowsOfShift", [](Call& c) { c.params.score_shift.shape[2] = 4; },
       "score_shift.shape[2] is 4; must equal q.shape[1] (5)"},
  };
}

class RefusedCall : public testing::TestWithParam<Refusal> {};
class RefusedFp8Call : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedCall, SaysWhyAndWritesNothing) { expect_refusal(GetParam(), plain_inputs()); }
TEST_P(RefusedFp8Call, SaysWhyAndWritesNothing) { expect_refusal(GetParam(), fp8_inputs()); }

const auto kByName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Views, RefusedCall, testing::ValuesIn(view_refusals()), kByName);
INSTANTIATE_TEST_SUITE_P(Shapes, RefusedCall, testing::ValuesIn(shape_refusals()), kByName);
INSTANTIATE_TEST_SUITE_P(Values, RefusedCall, testing::ValuesIn(value_refusals()), kByName);
INSTANTIATE_TEST_SUITE_P(Choices, RefusedCall, testing::ValuesIn(choice_refusals()), kByName);
INSTANTIATE_TEST_SUITE_P(Precisions, RefusedCall, testing::ValuesIn(precision_refusals()), kByName);
INSTANTIATE_TEST_SUITE_P(Fp8, RefusedFp8Call, testing::ValuesIn(fp8_refusals()), kByName);
INSTANTIATE_TEST_SUITE_P(Precisions, RefusedFp8Call, testing::ValuesIn(precision_of_fp8_refusals()),
                         kByName);

}  // namespace
}  // namespace octavo::test
