// SPDX-License-Identifier: Apache-2.0
// Sentences of calls on operands of mixed types, on other devices, of the quantiser, of names and
// of dispatch. (validate_test.cpp holds those of plain calls.)
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "octavo/engine.h"
#include "octavo/error.h"
#include "support/call.h"

namespace octavo::test {
namespace {

/// The sentence with which `body` is refused, or "accepted".
std::string refusal_of(const std::function<void()>& body,
                       ErrorCode code = ErrorCode::invalid_argument) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

Inputs plain_inputs() {
  return normal_inputs({.b = 2, .sq = 5, .sk = 7, .hq = 4, .hkv = 2, .d = 64, .dv = 32}, 112);
}

/// The refusal of a call, which must not touch its outputs.
std::string call_refusal(AttentionParams params, ErrorCode code = ErrorCode::invalid_argument) {
  Tensor out(DType::bf16, {2, 5, 4, 32}), lse(DType::f32, {2, 4, 5});
  out.poison();
  lse.poison();
  const Device out_device = params.out.device, lse_device = params.lse.device;
  params.out = out.view();
  params.out.device = out_device;
  params.lse = lse.view();
  params.lse.device = lse_device;
  const std::string sentence = refusal_of([&] { attention_forward(params); }, code);
  if (sentence != "accepted") {
    EXPECT_TRUE(out.is_poisoned());
    EXPECT_TRUE(lse.is_poisoned());
  }
  return sentence;
}

TEST(RefusedMixedCall, RotationNeedsBothQAndKIn16Bits) {
  Inputs x = plain_inputs();
  const Inputs codes = quantised(x.params(), Recipe::block());
  for (const bool q_in_fp8 : {true, false}) {
    Inputs mixed = x;
    (q_in_fp8 ? mixed.q : mixed.k) = q_in_fp8 ? codes.q : codes.k;
    (q_in_fp8 ? mixed.q_descale : mixed.k_descale) = q_in_fp8 ? codes.q_descale : codes.k_descale;
    EXPECT_EQ(
        call_refusal(mixed.params(parse_recipe("block+rotate"))),
        "attention_forward: recipe is block+rotate; must not rotate where q or k is quantised "
        "already: both turn, or neither");
  }
}

TEST(RefusedMixedCall, SmoothingNeedsKIn16Bits) {
  Inputs x = plain_inputs();
  const Inputs codes = quantised(x.params(), Recipe::block());
  Inputs mixed = x;
  mixed.k = codes.k;
  mixed.k_descale = codes.k_descale;
  EXPECT_EQ(call_refusal(mixed.params(parse_recipe("per_head+smooth"))),
            "attention_forward: recipe is per_head+smooth; must not smooth k where k is quantised "
            "already");
}

TEST(RefusedMixedCall, ShiftNeedsBothQAndKInFp8) {
  Inputs x = plain_inputs();
  const Inputs codes = quantised(x.params(), parse_recipe("block+smooth"));
  Inputs mixed = codes;
  mixed.q = x.q;
  mixed.q_descale = Tensor();
  EXPECT_EQ(
      call_refusal(mixed.params()),
      "attention_forward: score_shift is given; must be left out unless q and k are quantised "
      "already");
}

/// Tables of 10 positions for a call of 5 queries and 7 keys.
struct RopeTables {
  Tensor cos{DType::f32, {10, 16}}, sin{DType::f32, {10, 16}};

  Rope rope() {
    Rope rope;
    rope.cos = cos.view();
    rope.sin = sin.view();
    return rope;
  }
};

struct RopeRefusal {
  std::function<void(Rope&)> spoil;
  std::string sentence;
};

const std::vector<RopeRefusal>& rope_refusals() {
  static const std::vector<RopeRefusal> refusals = {
      {[](Rope& r) { r.cos.rank = 3; }, "rope.cos.rank is 3; must be 2"},
      {[](Rope& r) { r.sin.rank = 0; }, "rope.sin.rank is 0; must be 2"},
      {[](Rope& r) { r.sin.data = nullptr; }, "rope.sin.data is null; must point to 160 elements"},
      {[](Rope& r) { r.cos.dtype = DType::f8_e4m3; },
       "rope.cos.dtype is f8_e4m3; must be f32, f16 or bf16"},
      {[](Rope& r) { r.sin.stride[1] = 2; },
       "rope.sin.stride[1] is 2; must be 1 (a contiguous last dimension)"},
      {[](Rope& r) { r.cos.shape[1] = 33; },
       "rope.cos.shape[1] is 33; must be from 1 to half the head dim (32)"},
      {[](Rope& r) { r.cos.shape[1] = 0; },
       "rope.cos.shape[1] is 0; must be from 1 to half the head dim (32)"},
      {[](Rope& r) { r.sin.shape[1] = 8; },
       "rope.sin.shape[1] is 8; must equal rope.cos.shape[1] (16)"},
      {[](Rope& r) { r.sin.shape[0] = 9; },
       "rope.sin.shape[0] is 9; must equal rope.cos.shape[0] (10)"},
      {[](Rope& r) { r.sin.dtype = DType::f16; },
       "rope.sin.dtype is f16; must equal rope.cos.dtype (f32)"},
      {[](Rope& r) { r.q_offset = 6; },
       "rope.q_offset is 6; must leave q.shape[1] (5) of the 10 positions of rope.cos"},
      {[](Rope& r) { r.q_offset = -1; },
       "rope.q_offset is -1; must leave q.shape[1] (5) of the 10 positions of rope.cos"},
      {[](Rope& r) { r.k_offset = 4; },
       "rope.k_offset is 4; must leave k.shape[1] (7) of the 10 positions of rope.cos"}};
  return refusals;
}

TEST(RefusedRope, SaysWhyInBothFunctions) {
  Inputs x = plain_inputs();
  for (const RopeRefusal& refusal : rope_refusals()) {
    RopeTables tables;
    Rope rope = tables.rope();
    refusal.spoil(rope);
    AttentionParams params = x.params();
    params.rope = rope;
    EXPECT_EQ(call_refusal(params), "attention_forward: " + refusal.sentence);
    QuantizeParams what;
    what.q = params.q;
    what.k = params.k;
    what.v = params.v;
    what.rope = rope;
    EXPECT_EQ(refusal_of([&] { quantize(what); }), "quantize: " + refusal.sentence);
  }
}

TEST(RefusedRope, NeedsBothQAndKIn16Bits) {
  Inputs x = plain_inputs();
  const Inputs codes = quantised(x.params(), Recipe::block());
  for (Tensor Inputs::*operand : {&Inputs::q, &Inputs::k}) {
    Tensor Inputs::*descale = operand == &Inputs::q ? &Inputs::q_descale : &Inputs::k_descale;
    Inputs mixed = x;
    mixed.*operand = codes.*operand;
    mixed.*descale = codes.*descale;
    RopeTables tables;
    AttentionParams params = mixed.params();
    params.rope = tables.rope();
    EXPECT_EQ(
        call_refusal(params),
        "attention_forward: rope is given; must be left out, since q or k is quantised already");
  }
}

const Device kElsewhere = {Device::Kind::cuda, 99};

std::string other_device(const char* name) {
  return std::string("attention_forward: device of ") + name +
         " is another; must be the device of q";
}

/// An engine that reads host memory must not be handed an address of another device.
TEST(RefusedDevice, EveryTensorMustBeOnTheDeviceOfQ) {
  Inputs plain = plain_inputs();
  Inputs x = quantised(plain.params(), parse_recipe("block+smooth"));
  const std::pair<const char*, TensorView AttentionParams::*> tensors[] = {
      {"out", &AttentionParams::out},
      {"lse", &AttentionParams::lse},
      {"q_descale", &AttentionParams::q_descale},
      {"k_descale", &AttentionParams::k_descale},
      {"v_descale", &AttentionParams::v_descale},
      {"score_shift", &AttentionParams::score_shift}};
  for (const auto& [name, tensor] : tensors) {
    AttentionParams params = x.params();
    (params.*tensor).device = kElsewhere;
    EXPECT_EQ(call_refusal(params), other_device(name));
  }
  RopeTables tables;
  AttentionParams params = plain.params();
  params.rope = tables.rope();
  params.rope->cos.device = kElsewhere;
  EXPECT_EQ(call_refusal(params), other_device("rope.cos"));
  params.rope = tables.rope();
  params.rope->sin.device = kElsewhere;
  EXPECT_EQ(call_refusal(params), other_device("rope.sin"));
}

TEST(RefusedDevice, CallOfWhichNoEngineHasTheMemoryListsEveryReason) {
  Inputs x = plain_inputs();
  AttentionParams params = x.params();
  for (TensorView AttentionParams::*tensor :
       {&AttentionParams::q, &AttentionParams::k, &AttentionParams::v, &AttentionParams::out,
        &AttentionParams::lse}) {
    (params.*tensor).device = kElsewhere;
  }
  AttentionParams described = params;
  Tensor out(DType::bf16, {2, 5, 4, 32});
  described.out = out.view();
  described.out.device = kElsewhere;
  described.lse = {};
  const std::string sm90 = why_unsupported(described, "sm90");
  EXPECT_FALSE(sm90.empty());
  EXPECT_EQ(call_refusal(params, ErrorCode::unsupported),
            "attention_forward: no engine computes this call: sm90: " + sm90 +
                "; emulate: tensors are not in host memory");
}

TEST(RefusedQuantize, SaysWhy) {
  Inputs x = plain_inputs();
  const auto refusal = [&](const std::function<void(QuantizeParams&)>& spoil) {
    QuantizeParams params;
    params.q = x.q.view();
    params.k = x.k.view();
    params.v = x.v.view();
    spoil(params);
    return refusal_of([&] { quantize(params); });
  };
  EXPECT_EQ(refusal([](QuantizeParams& p) { p.q.dtype = DType::f8_e4m3; }),
            "quantize: q.dtype is f8_e4m3; must be f32, f16 or bf16");
  EXPECT_EQ(refusal([](QuantizeParams& p) { p.k.dtype = DType::f8_e4m3; }),
            "quantize: k.dtype is f8_e4m3; must be f32, f16 or bf16");
  EXPECT_EQ(refusal([](QuantizeParams& p) { p.v.dtype = DType::f8_e5m2; }),
            "quantize: v.dtype is f8_e5m2; must be f32, f16 or bf16");
  EXPECT_EQ(refusal([](QuantizeParams& p) { p.threads = -1; }),
            "quantize: threads is -1; must be 0 (one per core) or positive");
  EXPECT_EQ(refusal([](QuantizeParams& p) { p.recipe.kv_format = DType::f32; }),
            "quantize: recipe.kv_format is f32; must be f8_e4m3 or f8_e5m2");
  EXPECT_EQ(refusal([](QuantizeParams& p) {
              p.key_lengths = {1, 2, 3};
            }),
            "quantize: key_lengths.size is 3; must equal the batch (2)");
  EXPECT_EQ(refusal([](QuantizeParams& p) {
              p.key_lengths = {1, 9};
            }),
            "quantize: key_lengths[1] is 9; must be from 0 to k.shape[1] (7)");
  EXPECT_EQ(refusal([](QuantizeParams& p) { p.k.shape[3] = 32; }),
            "quantize: k.shape[3] is 32; must equal q.shape[3] (64)");
  EXPECT_EQ(refusal([](QuantizeParams& p) { p.engine = "reference"; }),
            "quantize: engine is 'reference'; must be one of auto, sm90, emulate");
  EXPECT_EQ(refusal([](QuantizeParams& p) { p.v.data = nullptr; }),
            "quantize: v.data is null; must point to 896 elements");
}

/// The CPU quantiser cannot read an address of another device.
TEST(RefusedQuantize, OperandsMustBeInHostMemory) {
  Inputs x = plain_inputs();
  QuantizeParams params;
  for (auto& [view, tensor] : {std::pair{&params.q, &x.q}, {&params.k, &x.k}, {&params.v, &x.v}}) {
    *view = tensor->view();
    view->device = {Device::Kind::cuda, 0};
  }
  EXPECT_EQ(refusal_of([&] { quantize(params); }),
            "quantize: device of q is cuda; must be cpu (host memory)");
}

TEST(RefusedName, ListsTheNamesThereAre) {
  EXPECT_EQ(refusal_of([] { parse_recipe("fp4"); }),
            "recipe is 'fp4'; must be one of per_tensor, per_head, block, fp8, default, "
            "strict_causal, with +rotate, +smooth, +int8 or +e5m2 behind it where wanted");
  EXPECT_EQ(refusal_of([] { parse_recipe("block+spin"); }),
            "recipe option is 'spin'; must be rotate, smooth, int8 or e5m2");
  EXPECT_EQ(refusal_of([] { parse_recipe("block+"); }),
            "recipe option is ''; must be rotate, smooth, int8 or e5m2");
  EXPECT_EQ(refusal_of([] { parse_softmax("fast"); }),
            "softmax is 'fast'; must be exact or direct");
  EXPECT_EQ(refusal_of([] { parse_accumulator("fp16"); }),
            "accumulator is 'fp16'; must be hopper or fp32");
  EXPECT_EQ(refusal_of([] { parse_dtype("int8"); }),
            "dtype is 'int8'; must be one of f32, f16, bf16, f8_e4m3, f8_e5m2, i8");
}

TEST(RefusedName, UnknownEngineIsRefusedWhereverItIsNamed) {
  Inputs x = plain_inputs();
  AttentionParams params = x.params();
  params.engine = "gpu";
  EXPECT_EQ(call_refusal(params),
            "attention_forward: engine is 'gpu'; must be one of auto, sm90, emulate, reference");
  Tensor out(DType::bf16, {2, 5, 4, 32});
  params.out = out.view();
  EXPECT_EQ(refusal_of([&] { why_unsupported(params, "gpu"); }),
            "why_unsupported: engine is 'gpu'; must be one of sm90, emulate, reference");
}

TEST(RefusedName, DescriptionsJudgeTheCallFirst) {
  Inputs x = plain_inputs();
  AttentionParams params = x.params();
  EXPECT_EQ(refusal_of([&] { explain_dispatch(params); }),
            "attention_forward: out.rank is 0; must be 4");
  EXPECT_EQ(refusal_of([&] { why_unsupported(params, "emulate"); }),
            "attention_forward: out.rank is 0; must be 4");
}

TEST(RefusedView, HasAtMostFourDimensions) {
  EXPECT_EQ(refusal_of([] {
              contiguous(nullptr, DType::f32, {1, 2, 3, 4, 5});
            }),
            "contiguous: shape has 5 dimensions; must have at most 4");
}

}  // namespace
}  // namespace octavo::test
