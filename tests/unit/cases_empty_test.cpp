// SPDX-License-Identifier: Apache-2.0
// Padding, rows without keys, entries without keys, and operands of zeros.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/call.h"
#include "support/compare.h"
#include "support/recipes.h"

namespace octavo::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// x with rows from `rows` on filled with `byte`.
Tensor with_tail(const Tensor& x, std::int64_t rows, int byte) {
  Tensor out = x;
  const std::size_t row = x.bytes().size() / static_cast<std::size_t>(x.extent(1));
  const auto used = static_cast<std::size_t>(rows) * row;
  std::memset(out.bytes().data() + used, byte, out.bytes().size() - used);
  return out;
}

/// Keys past a batch entry's length are never read as numbers: huge ones (0x7f in every byte) and
/// NaN (0xff) there change no bit.
void expect_padding_ignored(const Inputs& x, std::int64_t length, const AttentionParams& settings) {
  const auto run_with_tail = [&](int byte) {
    Tensor k = with_tail(x.k, length, byte), v = with_tail(x.v, length, byte);
    AttentionParams params = settings;
    params.k = k.view();
    params.v = v.view();
    return emulate(params);
  };
  ASSERT_TRUE(std::isnan(with_tail(x.v, length, 0xff).get(x.v.numel() - 1)));
  const Result zeros = run_with_tail(0x00);
  EXPECT_TRUE(all_finite(zeros.out));
  for (const int byte : {0x7f, 0xff}) {
    const Result got = run_with_tail(byte);
    EXPECT_TRUE(identical(got.out, zeros.out)) << "bytes " << byte;
    EXPECT_TRUE(identical(got.lse, zeros.lse)) << "bytes " << byte;
  }
}

TEST(CasesEmpty, NanBytesPastTheKeyLengthChangeNothing) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    Inputs x = normal_inputs({.sq = 130, .sk = 256}, 41, dtype);
    for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
      SCOPED_TRACE(dtype_name(dtype));
      AttentionParams params = x.params(recipe);
      params.softmax = path;
      params.key_lengths = {130};
      expect_padding_ignored(x, 130, params);
    });
  }
}

TEST(CasesEmpty, NanCodesPastTheKeyLengthChangeNothing) {
  Inputs plain = normal_inputs({.sq = 130, .sk = 256}, 42);
  for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
    Inputs x = quantised(plain.params(), recipe);
    AttentionParams params = x.params();
    params.softmax = path;
    params.key_lengths = {130};
    expect_padding_ignored(x, 130, params);
  });
}

TEST(CasesEmpty, NanBytesOutsideAStridedViewChangeNothing) {
  Inputs plain = normal_inputs({.sq = 130, .sk = 256}, 43);
  Inputs x = quantised(plain.params(), Recipe::block());
  AttentionParams params = x.params();
  params.k.shape[1] = params.v.shape[1] = 130;  // 130 keys in an allocation of 256
  AttentionParams lengths = x.params();
  lengths.key_lengths = {130};
  Inputs nans = x;
  nans.k = with_tail(x.k, 130, 0x7f);
  nans.v = with_tail(x.v, 130, 0x7f);
  params.k.data = nans.k.view().data;
  params.v.data = nans.v.view().data;
  const Result got = emulate(params);
  EXPECT_TRUE(all_finite(got.out));
  EXPECT_TRUE(identical(got.out, emulate(lengths).out));
}

/// O = 0 and LSE = -inf in rows [first, last), finite numbers in the others.
void expect_empty_rows(const Result& x, std::int64_t first, std::int64_t last) {
  const std::int64_t rows = x.out.extent(1), heads = x.out.extent(2);
  EXPECT_TRUE(all_equal(rows_of(x.out, first, last), 0.0f));
  EXPECT_TRUE(all_finite(x.out));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const float lse = x.lse.get(x.lse.at(0, h, i));
      if (i >= first && i < last) {
        EXPECT_EQ(lse, -kInfinity) << "row " << i;
      } else {
        EXPECT_TRUE(std::isfinite(lse)) << "row " << i;
      }
    }
  }
}

void expect_rows_before_first_key_empty(std::int64_t sq, std::int64_t sk) {
  SCOPED_TRACE(testing::Message() << "sq " << sq << ", sk " << sk);
  Inputs x = normal_inputs({.sq = sq, .sk = sk, .hq = 2}, 44);
  for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
    AttentionParams params = x.params(recipe);
    params.softmax = path;
    params.mask = MaskSpec::causal();
    expect_empty_rows(emulate(params), 0, sq - sk);
  });
  AttentionParams params = x.params();
  params.mask = MaskSpec::causal();
  expect_empty_rows(reference(params), 0, sq - sk);
}

TEST(CasesEmpty, CausalRowsBeforeTheFirstKeyGiveZeroAndMinusInfinity) {
  expect_rows_before_first_key_empty(128, 64);
  expect_rows_before_first_key_empty(300, 100);
  expect_rows_before_first_key_empty(5, 1);
}

TEST(CasesEmpty, WindowBeforeTheFirstKeyGivesZeroAndMinusInfinity) {
  Inputs x = normal_inputs({.sq = 200, .sk = 40}, 45);
  for (const char* engine : {"emulate", "reference"}) {
    AttentionParams params = x.params();
    params.mask = MaskSpec::window(7, 3);  // row i stands at key i - 160
    expect_empty_rows(run(params, engine), 0, 157);
  }
}

TEST(CasesEmpty, BatchEntryWithoutKeysGivesZeroAndLeavesTheOthersAlone) {
  Inputs x = normal_inputs({.b = 3, .sq = 70, .sk = 200, .hq = 2, .hkv = 1}, 46);
  for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
    AttentionParams params = x.params(recipe);
    params.softmax = path;
    params.key_lengths = {200, 0, 130};
    const Result got = emulate(params), want = reference(params);
    EXPECT_TRUE(agrees(got.out, want.out, normal_bounds(recipe)));
    EXPECT_TRUE(lse_agrees(got.lse, want.lse, 0.05));
    const std::int64_t row = got.out.at(1, 0, 0, 0), end = got.out.at(2, 0, 0, 0);
    for (std::int64_t i = row; i < end; ++i) ASSERT_EQ(got.out.get(i), 0.0f);
    for (std::int64_t i = 0; i < 140; ++i)
      ASSERT_EQ(got.lse.get(got.lse.at(1, 0, 0) + i), -kInfinity);
  });
}

TEST(CasesEmpty, CallsWithoutAnyKeyEnd) {
  Inputs x = normal_inputs({.b = 2, .sq = 130, .sk = 128}, 47);
  for (const char* engine : {"emulate", "reference"}) {
    for (const bool by_length : {true, false}) {
      SCOPED_TRACE(testing::Message() << engine << (by_length ? ", lengths of 0" : ", sk of 0"));
      AttentionParams params = x.params();
      if (by_length) {
        params.key_lengths = {0, 0};
      } else {
        params.k.shape[1] = params.v.shape[1] = 0;
      }
      const Result got = run(params, engine);
      EXPECT_TRUE(all_equal(got.out, 0.0f));
      EXPECT_TRUE(all_equal(got.lse, -kInfinity));
    }
  }
}

TEST(CasesEmpty, CallsWithoutAnyQueryOrBatchEntryEnd) {
  Inputs x = normal_inputs({.b = 2, .sq = 130, .sk = 128}, 48);
  for (const char* engine : {"emulate", "reference"}) {
    for (const int axis : {0, 1, 2}) {
      AttentionParams params = x.params();
      params.q.shape[static_cast<std::size_t>(axis)] = 0;
      if (axis == 0) params.k.shape[0] = params.v.shape[0] = 0;
      EXPECT_EQ(run(params, engine).stats.engine, engine);
    }
  }
}

/// Measured 0.025 (P uniform, only V is rounded) to 0.055.
constexpr Bounds kBounds = {0.02, 0.065};

/// Zeros in place of rows [first, last) of one operand.
void expect_zeros_are_plain_numbers(Tensor Inputs::*operand, std::int64_t first,
                                    std::int64_t last) {
  Inputs x = normal_inputs({.sq = 150, .sk = 384}, 49);
  scale_rows(x.*operand, first, last, 0.0f);
  const Result want = reference(x.params());
  for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
    AttentionParams params = x.params(recipe);
    params.softmax = path;
    const Result got = emulate(params);
    EXPECT_TRUE(agrees(got.out, want.out, kBounds));
    EXPECT_TRUE(lse_agrees(got.lse, want.lse, 0.04));
  });
}

TEST(CasesEmpty, AllZeroKeyTileScoresZero) { expect_zeros_are_plain_numbers(&Inputs::k, 128, 256); }

TEST(CasesEmpty, AllZeroValueTileAddsZero) { expect_zeros_are_plain_numbers(&Inputs::v, 128, 256); }

TEST(CasesEmpty, AllZeroQueriesOrKeysAttendUniformly) {
  expect_zeros_are_plain_numbers(&Inputs::q, 0, 150);
  expect_zeros_are_plain_numbers(&Inputs::k, 0, 384);
}

TEST(CasesEmpty, AllZeroValuesGiveZero) {
  Inputs x = normal_inputs({.sq = 150, .sk = 384}, 50);
  scale_rows(x.v, 0, 384, 0.0f);
  for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
    AttentionParams params = x.params(recipe);
    params.softmax = path;
    EXPECT_TRUE(all_equal(emulate(params).out, 0.0f));
  });
}

}  // namespace
}  // namespace octavo::test
