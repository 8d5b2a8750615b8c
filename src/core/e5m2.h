// SPDX-License-Identifier: Apache-2.0
// E5M2: S.EEEEE.MM, bias 15, largest 57344, smallest subnormal 2^-16, infinities and NaN as in
// FP16.
#pragma once

#include "core/fp8.h"

namespace octavo {

using E5m2 = Fp8Codec<2, 15, 0x7b, 0x7f>;
inline constexpr float kE5m2Max = 57344.0f;

static_assert(E5m2::decode(0x7b) == kE5m2Max);
static_assert(E5m2::decode(0x01) == 0x1p-16f);
static_assert(E5m2::encode(1e9f) == 0x7b && E5m2::encode(0.0f) == 0x00);

}  // namespace octavo
