// SPDX-License-Identifier: Apache-2.0
// Codecs against a table built from the formats' definition and a search for the nearest entry.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/e4m3.h"
#include "core/e5m2.h"
#include "core/half.h"

namespace octavo {
namespace {

struct Format {
  int mantissa, bias, largest_code;
  bool has_infinity;
};

constexpr Format kE4m3Format{3, 7, 0x7e, false};
constexpr Format kE5m2Format{2, 15, 0x7b, true};

double value_of(const Format& f, int code) {
  const int exponent = code >> f.mantissa, fraction = code & ((1 << f.mantissa) - 1);
  const double unit = std::ldexp(1.0, -f.mantissa);
  return exponent == 0 ? std::ldexp(fraction * unit, 1 - f.bias)
                       : std::ldexp(1.0 + fraction * unit, exponent - f.bias);
}

/// Nearest code by search; ties go to the even code; beyond the largest value, the largest.
int nearest(const std::vector<double>& table, double magnitude) {
  const auto above = std::lower_bound(table.begin(), table.end(), magnitude);
  if (above == table.end()) return static_cast<int>(table.size()) - 1;
  const int hi = static_cast<int>(above - table.begin());
  if (hi == 0) return 0;
  const double to_hi = table[static_cast<std::size_t>(hi)] - magnitude;
  const double to_lo = magnitude - table[static_cast<std::size_t>(hi - 1)];
  if (to_hi == to_lo) return hi % 2 == 0 ? hi : hi - 1;
  return to_hi < to_lo ? hi : hi - 1;
}

template <typename Codec>
class Fp8Test : public ::testing::Test {
 public:
  static constexpr Format kFormat = Codec::kMantissa == 3 ? kE4m3Format : kE5m2Format;

  static std::vector<double> table() {
    std::vector<double> values;
    for (int code = 0; code <= kFormat.largest_code; ++code)
      values.push_back(value_of(kFormat, code));
    return values;
  }

  static void expect_encodes(const std::vector<double>& values, float x) {
    const int sign = std::signbit(x) ? 0x80 : 0;
    const int expected =
        std::isfinite(x) ? sign | nearest(values, std::fabs(static_cast<double>(x))) : 0x7f;
    ASSERT_EQ(Codec::encode(x), expected) << "x = " << x;
  }
};

using Codecs = ::testing::Types<E4m3, E5m2>;
TYPED_TEST_SUITE(Fp8Test, Codecs);

TYPED_TEST(Fp8Test, DecodesAll256Codes) {
  for (int code = 0; code < 256; ++code) {
    const float x = TypeParam::decode(static_cast<std::uint8_t>(code));
    const int magnitude = code & 0x7f;
    EXPECT_EQ(std::signbit(x), code >= 128) << code;
    if (magnitude <= this->kFormat.largest_code) {
      EXPECT_EQ(std::fabs(static_cast<double>(x)), value_of(this->kFormat, magnitude)) << code;
    } else if (this->kFormat.has_infinity && magnitude == this->kFormat.largest_code + 1) {
      EXPECT_TRUE(std::isinf(x)) << code;
    } else {
      EXPECT_TRUE(std::isnan(x)) << code;
    }
  }
}

TYPED_TEST(Fp8Test, EncodesAllBf16Inputs) {
  const auto values = this->table();
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    this->expect_encodes(values, bf16_to_float(static_cast<std::uint16_t>(bits)));
  }
}

TYPED_TEST(Fp8Test, RoundsHalfwayPointsToEvenAndTheirNeighboursAway) {
  const auto values = this->table();
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const auto middle = static_cast<float>((values[i] + values[i + 1]) / 2);
    for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e30f)}) {
      this->expect_encodes(values, x);
      this->expect_encodes(values, -x);
    }
  }
}

TYPED_TEST(Fp8Test, SaturatesFiniteAndMarksTheRestNan) {
  const float top = TypeParam::decode(TypeParam::kMax);
  EXPECT_EQ(TypeParam::encode(std::numeric_limits<float>::max()), TypeParam::kMax);
  EXPECT_EQ(TypeParam::encode(top * 1.5f), TypeParam::kMax);
  EXPECT_EQ(TypeParam::encode(-top * 1.5f), 0x80 | TypeParam::kMax);
  EXPECT_TRUE(std::isnan(TypeParam::decode(TypeParam::encode(INFINITY))));
  EXPECT_TRUE(std::isnan(TypeParam::decode(TypeParam::encode(-INFINITY))));
  EXPECT_TRUE(std::isnan(TypeParam::decode(TypeParam::encode(NAN))));
  EXPECT_EQ(TypeParam::encode(std::numeric_limits<float>::denorm_min()), 0);
}

TYPED_TEST(Fp8Test, RoundTripsEveryFiniteCode) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) > this->kFormat.largest_code) continue;
    EXPECT_EQ(TypeParam::encode(TypeParam::decode(static_cast<std::uint8_t>(code))), code);
  }
}

}  // namespace
}  // namespace octavo
