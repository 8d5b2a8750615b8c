// SPDX-License-Identifier: Apache-2.0
// INT8 codes of Q and K: the nearest integer of -127 .. 127, so that the grid is symmetric.
//
//   code = round(x * scale), half to even      NaN and infinities: -1, and all else of
//                                             their block 0, beside a descale of NaN
//
// The last place of kInt8Zero is 1, so one fused multiply-add rounds to an integer, which is then
// the low byte of the sum. Products of two rows are sums of at most 256 * 127^2 < 2^22: added to
// the bits of kInt8Zero they read as FP32 numbers kInt8Zero + sum, without a conversion.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace octavo {

inline constexpr float kInt8Max = 127.0f;
inline constexpr float kInt8Zero = 0x1.8p23f;

// The largest factor of a row's scores beside kInt8Zero: S * factor + (m - kInt8Zero * factor)
// rounds its last term to 0.75 * factor, in powers of two of a weight. Scores beyond it saturate:
// one unit of S is 2^0.25 then, and the codes' own rounding a hundred units.
inline constexpr float kInt8MostFactor = 0.25f;

/// |x * scale| is at most 127 and a rounding.
inline std::uint8_t encode_int8(float x, float scale) {
  const float y = std::fma(x, scale, kInt8Zero);
  return y == y ? static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(y)) : 0xff;
}

constexpr float decode_int8(std::uint8_t code) { return static_cast<std::int8_t>(code); }

}  // namespace octavo
