// SPDX-License-Identifier: Apache-2.0
// E4M3: S.EEEE.MMM, bias 7, largest 448, smallest subnormal 2^-9, S.1111.111 is NaN, no infinities.
#pragma once

#include "core/fp8.h"

namespace octavo {

using E4m3 = Fp8Codec<3, 7, 0x7e, 0x7f>;
inline constexpr float kE4m3Max = 448.0f;

static_assert(E4m3::decode(0x7e) == kE4m3Max);
static_assert(E4m3::decode(0x01) == 0x1p-9f);
static_assert(E4m3::encode(1e9f) == 0x7e && E4m3::encode(0.0f) == 0x00);

}  // namespace octavo
