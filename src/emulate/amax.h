// SPDX-License-Identifier: Apache-2.0
// Stage `amax`: the largest magnitude of one quantisation block, finite elements only (an infinity
// or NaN becomes the NaN code in `cast` and must not flatten its neighbours).
#pragma once

#include <cmath>
#include <cstdint>

namespace octavo::emulate {

inline float amax(const float* x, std::int64_t n) {
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(x[i]);
    if (magnitude > largest && magnitude <= 0x1.fffffep127f) largest = magnitude;
  }
  return largest;
}

}  // namespace octavo::emulate
