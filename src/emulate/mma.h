// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulate/tile.h"

namespace octavo::emulate {

/// c[rows][cols] += a[rows][depth] b[depth][cols] in the arithmetic of `model`. Where finite is
/// false, NaN and infinities of a, b and c arrive in c as IEEE 754 has them.
void mma(Accumulator model, const simd::Matrix& a, const simd::Matrix& b, float* c,
         std::int64_t ldc, std::int64_t rows, std::int64_t cols, std::int64_t depth, bool finite);

}  // namespace octavo::emulate
