// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulate/tile.h"

namespace octavo::emulate {

/// What adds up products of codes in `format`: 14 bits are a matter of FP8 tensor cores alone.
inline Accumulator accumulator_of(DType format, Accumulator of_fp8) {
  return is_fp8(format) ? of_fp8 : Accumulator::fp32;
}

/// c[rows][cols] += a[rows][depth] b[depth][cols] in the arithmetic of `model`. Where finite is
/// false, NaN and infinities of a, b and c arrive in c as IEEE 754 has them.
void mma(Accumulator model, const simd::Matrix& a, const simd::Matrix& b, float* c,
         std::int64_t ldc, std::int64_t rows, std::int64_t cols, std::int64_t depth, bool finite);

}  // namespace octavo::emulate
