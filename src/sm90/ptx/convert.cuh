// SPDX-License-Identifier: Apache-2.0
// FP32 pairs to packed FP8, FP16 and BF16. PTX ISA, "Data Movement and Conversion Instructions:
// cvt".
#pragma once

#include <cstdint>

namespace octavo::sm90::ptx {

/// Two E4M3 codes, round to nearest even, saturating, NaN to 0x7f; `low` in bits 0-7.
__device__ inline std::uint16_t cvt_e4m3x2(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

/// The same in E5M2.
__device__ inline std::uint16_t cvt_e5m2x2(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

/// Two FP16 numbers, round to nearest even, negative ones to 0; `low` in bits 0-15.
__device__ inline std::uint32_t cvt_relu_f16x2(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Two BF16 or FP16 numbers, round to nearest even; `low` in bits 0-15.
__device__ inline std::uint32_t cvt_bf16x2(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ inline std::uint32_t cvt_f16x2(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace octavo::sm90::ptx
