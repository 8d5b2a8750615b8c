// SPDX-License-Identifier: Apache-2.0
// FP16 and BF16 conversions against values worked out in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/half.h"

namespace octavo {
namespace {

double f16_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) ? -magnitude : magnitude;
}

TEST(Half, F16DecodesEveryFiniteCode) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    if (((bits >> 10) & 31) == 31) continue;
    const auto code = static_cast<std::uint16_t>(bits);
    EXPECT_EQ(static_cast<double>(f16_to_float(code)), f16_value(code)) << bits;
  }
}

TEST(Half, F16RoundTripsEveryCode) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto code = static_cast<std::uint16_t>(bits);
    const float x = f16_to_float(code);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(x))));
    } else {
      EXPECT_EQ(float_to_f16(x), code) << bits;
    }
  }
}

TEST(Half, F16RoundsHalfwayToEvenEverywhere) {
  for (std::uint16_t code = 0; code < 0x7bff; ++code) {
    const double lo = f16_value(code), hi = f16_value(static_cast<std::uint16_t>(code + 1));
    const auto middle = static_cast<float>((lo + hi) / 2);
    EXPECT_EQ(float_to_f16(middle), code % 2 == 0 ? code : code + 1) << code;
    EXPECT_EQ(float_to_f16(std::nextafter(middle, 0.0f)), code) << code;
    EXPECT_EQ(float_to_f16(std::nextafter(middle, 1e9f)), code + 1) << code;
  }
}

TEST(Half, F16OverflowsToInfinityFrom65520) {
  EXPECT_EQ(float_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(-1e30f), 0xfc00);
  EXPECT_TRUE(std::isinf(f16_to_float(0x7c00)));
}

TEST(Half, Bf16RoundsHalfwayToEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3f80);            // tie, even below
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);  // tie, even above
  EXPECT_EQ(float_to_bf16(std::nextafter(1.0f + 0x1p-8f, 2.0f)), 0x3f81);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
  EXPECT_TRUE(std::isinf(bf16_to_float(float_to_bf16(3.4e38f))));
}

}  // namespace
}  // namespace octavo
