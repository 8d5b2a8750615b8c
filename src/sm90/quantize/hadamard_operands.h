// SPDX-License-Identifier: Apache-2.0
// Operands of the tensor cores' part of a rotation (core/hadamard.h), by thread.
//
// A block of n = 8 run channels has channel bits 0 .. f + 3, run = 2^(f + 1). For each of the run
// / 2 pairs of neighbours at 2 j in a run, one product 16 x 8 x 16 takes a group of eight rows and
// the 16 channels that share bits 1 .. f:
//
//   A[m][k]   = +-1    m: g = lane / 4 (bits f + 1 .. f + 3), then bit 0
//   B[k][row] = x      k: bit 0, then t = lane % 4 (bits f + 1, f + 2), then side (bit f + 3)
//
// Distances 2 .. run / 2 are left.
#pragma once

#include <cstdint>

#include "octavo/tensor.h"
#include "sm90/quantize/row_places.h"

namespace octavo::sm90 {

/// 16-bit numbers of a thread's channels of a group of rows, two a word: operand B.
template <int kD>
using GroupWords = std::uint32_t[2][TileShape<kD>::kBlocks][TileShape<kD>::kRun / 2];

/// D's signs of them: bit 2 j of 16 channels in bit 2 j, bit 2 j + 1 in bit 16 + 2 j, so that a
/// shift by 15 - 2 j brings both to the signs of a word.
template <int kD>
class SignWords {
  using Shape = TileShape<kD>;

 public:
  constexpr SignWords(const SignBits& signs, const ArrivalPlace<kD>& at) : word_{} {
    constexpr int kPiece = std::min(Shape::kRun, 16);
    for (int i = 0; i < kCount; i += kPiece) {
      const int run = i / Shape::kRun;
      const int channel = at.first_channel() + i % Shape::kRun +
                          at.channel_step(run / Shape::kBlocks, run % Shape::kBlocks);
      const auto bits = static_cast<std::uint32_t>(signs.word[channel / 64] >> channel % 64);
      word_[i / 16] |= (bits & ((1u << kPiece) - 1)) << i % 16;
    }
    for (std::uint32_t& word : word_) word |= word >> 1 << 16;
  }

  /// Of the i-th word in GroupWords' order.
  constexpr std::uint32_t word(int i) const {
    return (word_[i / 8] << (15 - 2 * (i % 8))) & 0x80008000u;
  }
  constexpr void apply(GroupWords<kD>& words) const {
    for (int i = 0; i < kCount / 2; ++i) {
      const int run = i / (Shape::kRun / 2);
      words[run / Shape::kBlocks][run % Shape::kBlocks][i % (Shape::kRun / 2)] ^= word(i);
    }
  }

 private:
  static constexpr int kCount = 2 * Shape::kBlocks * Shape::kRun;  // channels

  std::uint32_t word_[(kCount + 15) / 16];
};

/// Operand A, signs of the Hadamard matrix of size 16.
template <DType kType>
struct HadamardSigns {
  std::uint32_t a[4];

  constexpr explicit HadamardSigns(int thread) : a{} {
    constexpr std::uint32_t kOnes = kType == DType::f16 ? 0x3c003c00u : 0x3f803f80u;
    constexpr std::uint32_t kBoth = 0x80008000u, kOdd = 0x80000000u;
    const int g = thread % 32 / 4, common = g & (thread % 4);
    a[0] = kOnes ^ (((common ^ common >> 1) & 1) != 0 ? kBoth : 0);
    a[1] = a[0] ^ kOdd;
    a[2] = a[0] ^ ((g & 4) != 0 ? kBoth : 0);
    a[3] = a[2] ^ kOdd;
  }
};

}  // namespace octavo::sm90
