// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of one row in FP32.
//
//   x1 <- fma(x1, cos, -(x2 sin))      x2 <- fma(x2, cos, x1 sin)
//
// over pairs (x1, x2) of channels; the order of roundings is part of the definition.
#pragma once

#include <cmath>
#include <cstdint>

#include "octavo/quantize.h"

namespace octavo {

struct Pair {
  std::int64_t first, second;
};

/// Channels of pair i of rotary_dim / 2 = half pairs.
constexpr Pair rope_pair(RopeStyle style, std::int64_t i, std::int64_t half) {
  return style == RopeStyle::interleaved ? Pair{2 * i, 2 * i + 1} : Pair{i, i + half};
}

inline void rope_row(float* x, const float* cos, const float* sin, std::int64_t half,
                     RopeStyle style) {
  for (std::int64_t i = 0; i < half; ++i) {
    const Pair at = rope_pair(style, i, half);
    const float x1 = x[at.first], x2 = x[at.second];
    x[at.first] = std::fma(x1, cos[i], -(x2 * sin[i]));
    x[at.second] = std::fma(x2, cos[i], x1 * sin[i]);
  }
}

}  // namespace octavo
