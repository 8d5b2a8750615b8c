// SPDX-License-Identifier: Apache-2.0
// Stage `rotate`: x <- x D H along the padded head dim, Q and K alike (core/hadamard.h
// holds the definition and its order of additions).
#pragma once

#include "core/hadamard.h"

namespace octavo::emulate {

/// Of a row that no embedding has turned.
inline void rotate(float* row, int padded_d, const SignBits& signs) {
  apply_signs(row, padded_d, signs);
  hadamard_row(row, padded_d);
}

}  // namespace octavo::emulate
