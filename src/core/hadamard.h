// SPDX-License-Identifier: Apache-2.0
// Random-sign Hadamard rotation: x <- x D H along the (padded) head dim; what 1 / sqrt(n) would do
// to the values, scale and descale do instead.
//
// D: signs +-1 from a seed, one a channel. H: Walsh-Hadamard of size n = the largest power of two
// that divides the padded head dim, block-diagonal where that is smaller (96 = 3 x 32, 192 = 3 x
// 64). Orthogonal but for the factor, so Q K^T does not change; an outlier channel is spread over
// its n neighbours
// ("incoherent processing": Chee et al. 2023, QuIP; Shah et al. 2024, FlashAttention-3,
// section 3.3).
//
// Bits are part of the format, and made for tensor cores:
//   1. each channel is negated or not, and rounded to the operand's type, BF16 or FP16, which
//      matters behind a position embedding; FP32 x becomes BF16(x) and BF16(x - BF16(x)), 16 bits
//      in all;
//   2. sums of 16 channels, as a Hopper tensor core adds up 16-bit products (hadamard.cpp): over
//      channel bit 0 and the three highest bits of a block; FP32's two sums are added;
//   3. stages (a, b) <- (a + b, a - b) in FP32 at the distances that are left: 2, 4, .., n / 16.
#pragma once

#include <bit>
#include <cstdint>

#include "core/quant_block.h"
#include "core/split_mix.h"

namespace octavo {

/// Size of the Hadamard blocks of a padded head dim.
constexpr int hadamard_size(int padded_d) { return padded_d & -padded_d; }

/// 1 / sqrt(n) rounded to FP32, n a power of two up to 256.
constexpr float hadamard_norm(int n) {
  const int log2n = std::countr_zero(static_cast<unsigned>(n));
  const float half_powers = 1.0f / static_cast<float>(1 << (log2n / 2));
  return (log2n % 2 == 0) ? half_powers : half_powers * 0x1.6a09e6p-1f;  // sqrt(1/2)
}

/// Sign bits of 256 channels: channel c is negated where bit c % 64 of word c / 64 is set.
struct SignBits {
  std::uint64_t word[4];

  constexpr explicit SignBits(std::uint64_t seed) : word{} {
    std::uint64_t state = seed;
    for (auto& w : word) w = split_mix(state);
  }
  constexpr bool negative(int channel) const { return (word[channel / 64] >> (channel % 64)) & 1; }
};

/// Scale and descale of values that lack the factor `norm`, `amax` being theirs.
constexpr ScalePair scale_of(float amax, DType format, float norm) {
  const ScalePair pair = scale_of(amax * norm, format);
  return {pair.scale * norm, pair.descale};
}

/// One row of an operand of type bf16, f16 or f32 in place.
void rotate_row(float* x, int padded_d, const SignBits& signs, DType type);

}  // namespace octavo
