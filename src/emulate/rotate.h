// SPDX-License-Identifier: Apache-2.0
// Stage `rotate`: x <- x D H / sqrt(n) along the padded head dim, Q and K alike (core/hadamard.h
// holds the definition and its order of additions).
#pragma once

#include "core/hadamard.h"

namespace octavo::emulate {

inline void rotate(float* row, int padded_d, const SignBits& signs) {
  rotate_row(row, padded_d, signs);
}

}  // namespace octavo::emulate
