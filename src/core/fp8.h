// SPDX-License-Identifier: Apache-2.0
// What the two FP8 codecs share: round to nearest even, saturate, NaN to NaN.
//
//   code(x) = sign | RNE(|x| on the format's grid), at most the code of the largest finite value
//
// The same bits as the GPU's cvt.rn.satfinite.{e4m3x2,e5m2x2}.f32 for every finite input and NaN;
// infinities become NaN here (the instruction saturates them): a format must not turn an infinity
// of the input into an ordinary number. The GPU quantiser selects NaN for them too.
#pragma once

#include <bit>
#include <cstdint>

namespace octavo {

template <int kMantissaBits, int kBias, std::uint8_t kMaxCode, std::uint8_t kNanCode>
struct Fp8Codec {
  static constexpr int kMantissa = kMantissaBits;
  static constexpr std::uint8_t kMax = kMaxCode;
  static constexpr std::uint8_t kNan = kNanCode;
  static constexpr int kMinExponent = 1 - kBias;  // of normal numbers; subnormals share it
  static constexpr int kDrop = 23 - kMantissaBits;

  static constexpr float power_of_two(int exponent) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
  }

  static constexpr std::uint8_t encode(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) return kNanCode;  // one NaN, whatever the sign, as cvt gives it
    std::uint32_t code;
    if (std::bit_cast<float>(magnitude) < power_of_two(kMinExponent)) {
      // Adding a number whose last place is the subnormal grid makes the FPU round to that grid.
      constexpr float kGrid = power_of_two(kMinExponent - kMantissaBits + 23);
      const float shifted = std::bit_cast<float>(magnitude) + kGrid;
      code = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kGrid);
    } else {
      const std::uint32_t half = (1u << (kDrop - 1)) - 1u + ((magnitude >> kDrop) & 1u);
      code = ((magnitude + half) >> kDrop) -
             (static_cast<std::uint32_t>(127 - kBias) << kMantissaBits);
    }
    return static_cast<std::uint8_t>(sign | (code > kMaxCode ? kMaxCode : code));
  }

  static constexpr bool is_nan(std::uint8_t code) {
    return (code & 0x7fu) > (kMaxCode < 0x7cu ? 0x7cu : kMaxCode);
  }
  static constexpr bool is_infinite(std::uint8_t code) {
    return kMaxCode < 0x7cu && (code & 0x7fu) == 0x7cu;
  }

  static constexpr float decode(std::uint8_t code) {
    const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
    if (is_nan(code)) return std::bit_cast<float>(sign | 0x7fc00000u);
    if (is_infinite(code)) return std::bit_cast<float>(sign | 0x7f800000u);
    const std::uint32_t magnitude = static_cast<std::uint32_t>(code & 0x7fu) << kDrop;
    // The pattern's exponent is 127 - kBias too small; the product repairs it, subnormals included.
    const float value = std::bit_cast<float>(magnitude) * power_of_two(127 - kBias);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
};

}  // namespace octavo
