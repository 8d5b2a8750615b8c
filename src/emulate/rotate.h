// SPDX-License-Identifier: Apache-2.0
// Stage `rotate`: x <- x D H along the padded head dim, Q and K alike (core/hadamard.h
// holds the definition and its roundings).
#pragma once

#include "core/hadamard.h"

namespace octavo::emulate {

/// `type`: of the operand; f32 of K's mean.
inline void rotate(float* row, int padded_d, const SignBits& signs, DType type) {
  rotate_row(row, padded_d, signs, type);
}

}  // namespace octavo::emulate
