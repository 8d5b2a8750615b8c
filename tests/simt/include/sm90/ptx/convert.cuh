// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/e4m3.h"
#include "core/e5m2.h"
#include "core/half.h"
#include "device.h"

namespace octavo::sm90::ptx {

/// satfinite: infinities too become the largest.
template <typename Format>
std::uint16_t pair_of(float low, float high, float most) {
  const auto code = [&](float x) {
    return Format::encode(std::isinf(x) ? std::copysign(most, x) : x);
  };
  return static_cast<std::uint16_t>(code(low) | code(high) << 8);
}
inline std::uint16_t cvt_e4m3x2(float low, float high) {
  return pair_of<octavo::E4m3>(low, high, kE4m3Max);
}
inline std::uint16_t cvt_e5m2x2(float low, float high) {
  return pair_of<octavo::E5m2>(low, high, kE5m2Max);
}
inline std::uint32_t cvt_bf16x2(float low, float high) {
  return float_to_bf16(low) | static_cast<std::uint32_t>(float_to_bf16(high)) << 16;
}
inline std::uint32_t cvt_f16x2(float low, float high) {
  return float_to_f16(low) | static_cast<std::uint32_t>(float_to_f16(high)) << 16;
}

}  // namespace octavo::sm90::ptx
