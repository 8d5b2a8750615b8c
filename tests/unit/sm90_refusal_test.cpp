// SPDX-License-Identifier: Apache-2.0
// What the Hopper kernels decline, with its sentence: no GPU is needed to ask.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "octavo/engine.h"

namespace octavo::test {
namespace {

/// Engines judge shapes, strides and types, never contents.
alignas(16) float placeholder = 1;

AttentionParams call(DType dtype = DType::bf16) {
  AttentionParams params;
  for (TensorView* x : {&params.q, &params.k, &params.v}) {
    *x = contiguous(&placeholder, dtype, {1, 128, 2, 64});
  }
  params.out = contiguous(&placeholder, DType::bf16, {1, 128, 2, 64});
  if (is_fp8(dtype)) {
    params.q_descale = params.k_descale = params.v_descale =
        contiguous(&placeholder, DType::f32, {1});
  }
  return params;
}

void expect_declined(const AttentionParams& params, const std::string& sentence) {
#ifdef OCTAVO_WITH_CUDA
  EXPECT_EQ(why_unsupported(params, "sm90"), sentence);
#else
  (void)sentence;
  EXPECT_EQ(why_unsupported(params, "sm90"), "this library was built without CUDA");
#endif
}

TEST(Sm90Refusal, SoftmaxAccumulatorAndPromotion) {
  AttentionParams params = call();
  params.softmax = SoftmaxPath::direct;
  params.recipe = parse_recipe("block+e5m2");
  expect_declined(params, "softmax is direct; must be exact where k and v are E5M2");
  params = call();
  params.accumulator = Accumulator::fp32;
  expect_declined(params, "accumulator is fp32; must be hopper, which is what the tensor cores do");
  params = call();
  params.promote_every = 2;
  expect_declined(params, "promote_every is 2; must be 1, which is what the Hopper kernels do");
}

TEST(Sm90Refusal, OperandsOfTwoKinds) {
  AttentionParams params = call();
  params.k.dtype = DType::f8_e4m3;
  params.k_descale = contiguous(&placeholder, DType::f32, {1});
  expect_declined(params, "one of k and v is quantised; must be both or neither");
  params = call(DType::f8_e4m3);
  params.k.dtype = DType::f8_e5m2;
  expect_declined(params, "k and v are FP8 of two formats; must be of one");
  params = call();
  params.q.dtype = DType::f32;
  expect_declined(params,
                  "k.dtype is bf16; must have the size of q.dtype (f32) for the GPU kernels");
}

TEST(Sm90Refusal, StoredOperandsOffBoundaries) {
  AttentionParams params = call(DType::f8_e4m3);
  params.k.stride[1] += 8;
  expect_declined(
      params,
      "k is quantised with strides or a base that are no multiples of 16 bytes; must be for "
      "the Hopper kernels");
}

TEST(Sm90Refusal, SixteenBitsThatTheCopyEngineCannotRead) {
  AttentionParams params = call();
  params.precision = Precision::bf16;
  AttentionParams askew = params;
  askew.v.stride[1] += 4;
  expect_declined(
      askew,
      "v is in 16 bits with strides or a base that are no multiples of 16 bytes; must be for the "
      "Hopper kernels");
  AttentionParams broadcast = params;
  broadcast.k.stride[1] = 0;
  expect_declined(
      broadcast,
      "k is in 16 bits and broadcast, with a stride of 0; must be copied for the Hopper kernels");
}

TEST(Sm90Refusal, RotaryDims) {
  AttentionParams params = call();
  std::vector<float> table(128 * 20);
  const TensorView angles = contiguous(table.data(), DType::f32, {128, 20});
  params.rope = Rope{angles, angles, RopeStyle::half_split, 0, 0};
  expect_declined(params, "rope.cos.shape[1] is 20; must be a multiple of 8 for the GPU kernels");
}

}  // namespace
}  // namespace octavo::test
