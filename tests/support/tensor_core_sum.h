// SPDX-License-Identifier: Apache-2.0
// What mma.m16n8k16 with 16-bit operands and no addend makes of 16 products on a Hopper GPU, in
// integers: the definition that core/hadamard.cpp and the GPU are held against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace octavo::test {

inline float tensor_core_sum(const float (&terms)[16]) {
  constexpr int kTermBits = 25, kResultBits = 24;
  double ieee = 0, most = 0x1p-126;
  for (float x : terms) {
    ieee += x;
    most = std::max(most, std::fabs(static_cast<double>(x)));
  }
  if (!std::isfinite(ieee)) return static_cast<float>(ieee);
  const double up = std::ldexp(1.0, kTermBits - std::ilogb(most));
  std::int64_t sum = 0;
  for (float x : terms) sum += static_cast<std::int64_t>(x * up);  // cut
  std::int64_t magnitude = std::abs(sum), unit = 1;
  while (magnitude / unit >> kResultBits != 0) unit *= 2;
  magnitude -= magnitude % unit;
  const double result = static_cast<double>(sum < 0 ? -magnitude : magnitude) / up;
  if (std::fabs(result) > std::numeric_limits<float>::max()) {
    return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(sum));
  }
  return static_cast<float>(result);
}

}  // namespace octavo::test
