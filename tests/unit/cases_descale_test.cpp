// SPDX-License-Identifier: Apache-2.0
// Descales of operands that come in FP8: what they multiply, which shapes they may have, and that
// none is ever assumed.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "octavo/error.h"
#include "support/call.h"
#include "support/compare.h"

namespace octavo::test {
namespace {

constexpr Extents kExtents = {.b = 2, .sq = 150, .sk = 300, .hq = 4, .hkv = 2, .d = 64, .dv = 64};

/// E4M3 codes of magnitude 0.5 to 4: times 4 or 1/4 they are exact codes again.
Tensor codes(std::vector<std::int64_t> shape, std::uint64_t seed) {
  Tensor x(DType::f8_e4m3, std::move(shape));
  Random random(seed);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const auto magnitude = static_cast<float>(0.5 + 3.5 * random.uniform());
    x.set(i, random.chance(0.5) ? magnitude : -magnitude);
  }
  return x;
}

Tensor filled(std::vector<std::int64_t> shape, float value) {
  Tensor x(DType::f32, std::move(shape));
  for (std::int64_t i = 0; i < x.numel(); ++i) x.set(i, value);
  return x;
}

/// Powers of two from 1/4 to 2, another one next to each.
Tensor distinct(std::vector<std::int64_t> shape, std::uint64_t seed) {
  Tensor x(DType::f32, std::move(shape));
  Random random(seed);
  int exponent = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    exponent = (exponent + 1 + static_cast<int>(random.bits() % 3)) % 4;
    x.set(i, std::ldexp(1.0f, exponent - 2));
  }
  return x;
}

Inputs code_inputs(const Extents& n, std::uint64_t seed) {
  Inputs x{codes(n.q_shape(), seed),
           codes(n.k_shape(), seed + 1),
           codes(n.v_shape(), seed + 2),
           filled({1}, 1),
           filled({1}, 1),
           filled({1}, 1),
           {}};
  return x;
}

/// A row and head's descale, for an independent account of what the shapes mean.
using DescaleOf = float (*)(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t row);

/// The FP32 tensor that codes and descales stand for.
Tensor premultiplied(const Tensor& x, const Tensor& descale, DescaleOf descale_of) {
  Tensor out(DType::f32, x.shape());
  for (std::int64_t b = 0; b < x.extent(0); ++b) {
    for (std::int64_t s = 0; s < x.extent(1); ++s) {
      for (std::int64_t h = 0; h < x.extent(2); ++h) {
        for (std::int64_t c = 0; c < x.extent(3); ++c) {
          out.set(x.at(b, s, h, c), x.get(x.at(b, s, h, c)) * descale_of(descale, b, h, s));
        }
      }
    }
  }
  return out;
}

float of_tensor(const Tensor& x, std::int64_t, std::int64_t, std::int64_t) { return x.get(0); }
float of_head(const Tensor& x, std::int64_t, std::int64_t h, std::int64_t) { return x.get(h); }
float of_batch_head(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t) {
  return x.get(b * x.extent(1) + h);
}
float of_kv_head(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t) {
  return x.get(b * x.extent(1) + h / 2);
}
float of_block_64(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t row) {
  return x.get(x.at(b, h, row / 64));
}
float of_block_128(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t row) {
  return x.get(x.at(b, h, row / 128));
}
float of_row(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t row) {
  return x.get(x.at(b, h, row));
}
float of_batch(const Tensor& x, std::int64_t b, std::int64_t, std::int64_t) { return x.get(b); }

/// What rounding P alone costs on these operands: measured 0.009 to 0.019, depending on how much of
/// a row its largest weight holds (which is 256, and exact).
constexpr Bounds kPOnly = {0.006, 0.035};

/// The same for the LSE, whose sum is of rounded weights: none is off by more than 1/17, and the
/// largest is exact. Measured up to 0.0185, where two or three weights make a row. With a descale
/// per key of V the sum is of the weights before rounding; what remains is the accumulator of S.
constexpr double kLseOfCodes = 0.03, kLseOfWeights = 0.005;

struct Shape {
  std::string name;
  std::vector<std::int64_t> shape;
  DescaleOf descale_of;
};

/// One operand's descale in every shape against the reference on premultiplied FP32; and the
/// descales moved by one place must not pass.
void expect_shapes_mean_what_they_say(Tensor Inputs::*operand, Tensor Inputs::*descale,
                                      const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(shape.name);
    Inputs x = code_inputs(kExtents, 61);
    x.*descale = distinct(shape.shape, 62);
    AttentionParams params = x.params();
    params.sm_scale = 0.03f;

    Tensor plain[3] = {premultiplied(x.q, x.q_descale, of_tensor),
                       premultiplied(x.k, x.k_descale, of_tensor),
                       premultiplied(x.v, x.v_descale, of_tensor)};
    const int i = operand == &Inputs::q ? 0 : operand == &Inputs::k ? 1 : 2;
    plain[i] = premultiplied(x.*operand, x.*descale, shape.descale_of);
    AttentionParams expected = params;
    expected.q_descale = expected.k_descale = expected.v_descale = {};
    expected.q = plain[0].view();
    expected.k = plain[1].view();
    expected.v = plain[2].view();

    const Result want = reference(expected);
    EXPECT_TRUE(agrees(emulate(params).out, want.out, kPOnly));
    const bool per_key_of_v = i == 2 && shape.descale_of == of_row;
    const double lse_tolerance = per_key_of_v ? kLseOfWeights : kLseOfCodes;
    EXPECT_TRUE(lse_agrees(emulate(params).lse, want.lse, lse_tolerance));
    EXPECT_TRUE(agrees(reference(params).out, want.out, {0, 1e-6}));

    Tensor& entries = x.*descale;
    if (entries.numel() == 1) continue;
    const std::vector<float> values = entries.values();
    for (std::int64_t at = 0; at < entries.numel(); ++at) {
      entries.set(at, values[static_cast<std::size_t>((at + 1) % entries.numel())]);
    }
    EXPECT_GT(difference(emulate(params).out, want.out).relative_l2, 0.1) << "after permuting";
    if (i != 2) {
      EXPECT_FALSE(lse_agrees(emulate(params).lse, want.lse, 10 * lse_tolerance));
    }
  }
}

TEST(CasesDescale, ShapesOfQueryDescalesMeanWhatTheySay) {
  expect_shapes_mean_what_they_say(&Inputs::q, &Inputs::q_descale,
                                   {{"[1]", {1}, of_tensor},
                                    {"[h]", {4}, of_head},
                                    {"[b, 1]", {2, 1}, of_batch},
                                    {"[b, hq]", {2, 4}, of_batch_head},
                                    {"[b, hkv]", {2, 2}, of_kv_head},
                                    {"[b, h, blocks of 64]", {2, 4, 3}, of_block_64},
                                    {"[b, h, blocks of 128]", {2, 4, 2}, of_block_128},
                                    {"[b, h, rows]", {2, 4, 150}, of_row}});
}

TEST(CasesDescale, ShapesOfKeyDescalesMeanWhatTheySay) {
  expect_shapes_mean_what_they_say(&Inputs::k, &Inputs::k_descale,
                                   {{"[1]", {1}, of_tensor},
                                    {"[h]", {2}, of_head},
                                    {"[b, 1]", {2, 1}, of_batch},
                                    {"[b, h]", {2, 2}, of_batch_head},
                                    {"[b, h, blocks]", {2, 2, 3}, of_block_128},
                                    {"[b, h, rows]", {2, 2, 300}, of_row}});
}

TEST(CasesDescale, ShapesOfValueDescalesMeanWhatTheySay) {
  expect_shapes_mean_what_they_say(&Inputs::v, &Inputs::v_descale,
                                   {{"[1]", {1}, of_tensor},
                                    {"[h]", {2}, of_head},
                                    {"[b, 1]", {2, 1}, of_batch},
                                    {"[b, h]", {2, 2}, of_batch_head},
                                    {"[b, h, blocks]", {2, 2, 3}, of_block_128},
                                    {"[b, h, rows]", {2, 2, 300}, of_row}});
}

TEST(CasesDescale, PowersOfTwoEqualPremultipliedCodesToTheBit) {
  Inputs x = code_inputs(kExtents, 63);
  x.q_descale = filled({1}, 4.0f);
  x.k_descale = filled({1}, 0.25f);
  x.v_descale = filled({1}, 2.0f);
  Inputs y = code_inputs(kExtents, 63);
  for (std::int64_t i = 0; i < y.q.numel(); ++i) y.q.set(i, 4.0f * y.q.get(i));
  for (std::int64_t i = 0; i < y.k.numel(); ++i) y.k.set(i, 0.25f * y.k.get(i));
  for (std::int64_t i = 0; i < y.v.numel(); ++i) y.v.set(i, 2.0f * y.v.get(i));
  for (const char* engine : {"emulate", "reference"}) {
    EXPECT_TRUE(identical(run(x.params(), engine).out, run(y.params(), engine).out)) << engine;
    EXPECT_TRUE(identical(run(x.params(), engine).lse, run(y.params(), engine).lse)) << engine;
  }
}

TEST(CasesDescale, StridedAndBroadcastDescalesAreReadByTheirStrides) {
  Inputs x = code_inputs(kExtents, 64);
  x.k_descale = distinct({2, 2, 3}, 65);
  const Result want = emulate(x.params());

  Tensor wide(DType::f32, {2, 2, 6});  // every other entry
  Tensor swapped(DType::f32, {3, 2, 2});
  wide.poison();
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t n = 0; n < 3; ++n) {
        const float value = x.k_descale.get(x.k_descale.at(b, h, n));
        wide.set(wide.at(b, h, 2 * n), value);
        swapped.set(swapped.at(n, h, b), value);
      }
    }
  }
  AttentionParams params = x.params();
  params.k_descale = wide.view();
  params.k_descale.shape[2] = 3;
  params.k_descale.stride[2] = 2;
  EXPECT_TRUE(identical(emulate(params).out, want.out));
  params.k_descale = transposed(swapped.view(), 0, 2);
  EXPECT_TRUE(identical(emulate(params).out, want.out));

  Tensor one = filled({1}, 0.5f);
  x.k_descale = filled({2, 2, 3}, 0.5f);
  params = x.params();
  params.k_descale.data = one.view().data;
  params.k_descale.stride = {0, 0, 0, 0};
  EXPECT_TRUE(identical(emulate(params).out, emulate(x.params()).out));
}

TEST(CasesDescale, OtherShapesAreRefused) {
  const std::vector<std::vector<std::int64_t>> wrong = {
      {2},       {3},       {0},         {1, 3},    {3, 2},   {4, 2},
      {2, 2, 2}, {2, 2, 4}, {2, 2, 299}, {3, 2, 3}, {2, 3, 3}};
  for (const auto& shape : wrong) {
    Extents n = kExtents;
    n.hq = n.hkv = 1;  // [2] is then no number of heads
    if (shape.size() > 1) n = kExtents;
    Inputs x = code_inputs(n, 66);
    x.k_descale = Tensor(DType::f32, shape);
    AttentionParams params = x.params();
    params.k_descale = x.k_descale.view();
    try {
      emulate(params);
      ADD_FAILURE() << "accepted " << testing::PrintToString(shape);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("k_descale"), std::string::npos) << error.what();
    }
  }
}

TEST(CasesDescale, MissingDescaleIsAnErrorWhicheverOperandLacksIt) {
  for (Tensor Inputs::*descale : {&Inputs::q_descale, &Inputs::k_descale, &Inputs::v_descale}) {
    for (const char* engine : {"auto", "emulate", "reference"}) {
      Inputs x = code_inputs(kExtents, 67);
      x.*descale = Tensor();
      EXPECT_THROW(run(x.params(), engine), Error);
    }
  }
}

bool none_finite(const Tensor& x) {
  for (const float value : x.values()) {
    if (std::isfinite(value)) return false;
  }
  return true;
}

/// A descale is the quotient of a magnitude: never negative, NaN or infinite. One that is must be
/// refused, or show, or count as it is; it must not become an ordinary number on the way.
TEST(CasesDescale, ImpossibleDescaleIsNotReplacedSilently) {
  for (Tensor Inputs::*descale : {&Inputs::q_descale, &Inputs::k_descale, &Inputs::v_descale}) {
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), -1.0f, std::numeric_limits<float>::infinity()}) {
      SCOPED_TRACE(testing::Message() << "descale " << value);
      Inputs x = code_inputs(kExtents, 68);
      x.*descale = filled({1}, value);
      AttentionParams params = x.params();
      params.sm_scale = 0.03f;
      try {
        const Result got = emulate(params);
        EXPECT_TRUE(none_finite(got.out) || agrees(got.out, reference(params).out, kPOnly));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
