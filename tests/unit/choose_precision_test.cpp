// SPDX-License-Identifier: Apache-2.0
// Precision "auto": which one a call gets, by its shape.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/choose_precision.h"
#include "core/validate.h"
#include "octavo/attention.h"
#include "support/call.h"

namespace octavo::test {
namespace {

/// A call whose tensors are in device memory that nobody reads.
AttentionParams call(const Extents& n, DType dtype = DType::bf16) {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  const Device device{Device::Kind::cuda, 0};
  AttentionParams params;
  params.precision = Precision::automatic;
  params.q = contiguous(at(0x100000), dtype, {n.b, n.sq, n.hq, n.d}, device);
  params.k = contiguous(at(0x200000), dtype, {n.b, n.sk, n.hkv, n.d}, device);
  params.v = contiguous(at(0x300000), dtype, {n.b, n.sk, n.hkv, n.d}, device);
  params.out = contiguous(at(0x400000), DType::bf16, {n.b, n.sq, n.hq, n.d}, device);
  return params;
}

Precision chosen(const AttentionParams& params) { return validate(params).precision; }

/// b16 .. b1 of 16384 tokens in all.
Extents tokens(std::int64_t s, std::int64_t h, std::int64_t d) {
  return {.b = 16384 / s, .sq = s, .sk = s, .hq = h, .hkv = h, .d = d};
}

TEST(ChoosePrecision, LongSequencesAreQuantised) {
  for (const std::int64_t d : {64, 128, 256}) {
    EXPECT_EQ(chosen(call(tokens(512, 2048 / d, d))), Precision::bf16) << d;
    EXPECT_EQ(chosen(call(tokens(1024, 2048 / d, d))), Precision::bf16) << d;
    EXPECT_EQ(chosen(call(tokens(8192, 2048 / d, d))), Precision::fp8) << d;
    EXPECT_EQ(chosen(call(tokens(16384, 2048 / d, d))), Precision::fp8) << d;
  }
}

TEST(ChoosePrecision, CountsTheKeysThatRowsSee) {
  AttentionParams params = call(tokens(4096, 16, 128));
  EXPECT_EQ(chosen(params), Precision::fp8);
  params.mask = MaskSpec::window(200, 0);
  EXPECT_EQ(chosen(params), Precision::bf16);
  params = call(tokens(2048, 16, 128));
  params.mask = MaskSpec::causal();
  EXPECT_EQ(chosen(params), Precision::bf16);
}

TEST(ChoosePrecision, FewRowsDoNotPayForManyKeys) {
  EXPECT_EQ(chosen(call({.b = 1, .sq = 64, .sk = 65536, .hq = 16, .hkv = 16, .d = 128})),
            Precision::bf16);
  EXPECT_EQ(chosen(call({.b = 1, .sq = 16384, .sk = 65536, .hq = 16, .hkv = 16, .d = 128})),
            Precision::fp8);
}

TEST(ChoosePrecision, SixteenBitsOnlyWhereTheyCanBe) {
  const Extents n = tokens(512, 16, 128);
  EXPECT_EQ(chosen(call(n, DType::f16)), Precision::fp16);
  EXPECT_EQ(chosen(call(n, DType::f32)), Precision::fp8);
  AttentionParams mixed = call(n);
  mixed.v.dtype = DType::f16;
  EXPECT_EQ(chosen(mixed), Precision::fp8);
  AttentionParams askew = call(n);
  askew.k.stride[1] += 4;
  EXPECT_EQ(chosen(askew), Precision::fp8);
  AttentionParams broadcast = call(n);
  broadcast.v.stride[2] = 0;
  EXPECT_EQ(chosen(broadcast), Precision::fp8);
}

TEST(ChoosePrecision, SettingsOfFp8ApplyWhereItIsChosen) {
  AttentionParams params = call(tokens(512, 16, 128));
  params.recipe = Recipe::block();
  params.softmax = SoftmaxPath::direct;
  params.promote_every = 2;
  const AttentionProblem half = validate(params);
  EXPECT_EQ(half.precision, Precision::bf16);
  EXPECT_EQ(half.softmax, SoftmaxPath::exact);
  EXPECT_EQ(half.promote_every, 1);
  AttentionParams longer = call(tokens(16384, 16, 128));
  longer.recipe = Recipe::block();
  longer.softmax = SoftmaxPath::direct;
  const AttentionProblem fp8 = validate(longer);
  EXPECT_EQ(fp8.precision, Precision::fp8);
  EXPECT_EQ(fp8.softmax, SoftmaxPath::direct);
  EXPECT_EQ(fp8.recipe, Recipe::block());
}

TEST(ChoosePrecision, IsReported) {
  Inputs x = normal_inputs({.sq = 64, .sk = 64}, 5, DType::bf16);
  AttentionParams params = x.params();
  params.precision = Precision::automatic;
  EXPECT_EQ(run(params, "emulate").stats.precision, Precision::bf16);
}

}  // namespace
}  // namespace octavo::test
