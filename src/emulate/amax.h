// SPDX-License-Identifier: Apache-2.0
// Stage `amax`: the largest magnitude of one quantisation block, finite elements only (an infinity
// or NaN becomes the NaN code in `cast` and must not flatten its neighbours). INT8 has no such
// code: there the block's amax is NaN.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "octavo/tensor.h"

namespace octavo::emulate {

/// The larger of two amaxes; NaN where one is.
inline float larger(float a, float b) { return a >= b || std::isnan(a) ? a : b; }

inline float amax(const float* x, std::int64_t n, DType format) {
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(x[i]);
    if (magnitude <= 0x1.fffffep127f) {
      if (magnitude > largest) largest = magnitude;
    } else if (format == DType::i8) {
      return std::numeric_limits<float>::quiet_NaN();
    }
  }
  return largest;
}

}  // namespace octavo::emulate
