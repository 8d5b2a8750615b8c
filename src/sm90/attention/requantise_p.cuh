// SPDX-License-Identifier: Apache-2.0
// Stage `requantise_p`: P8 = E4M3(p), packed as the A operand of P V. The keys of V^T stand in the
// order that makes this a cast without any exchange between threads (core/kv_order.h).
//
// The direct path makes codes from scores, without p: an E4M3 pattern is a piecewise linear log2.
//
//   code = round(max(8 S factor - 8 m + kDirectTop, 0))
//
// FP16's subnormal numbers are multiples of 2^-24, whose bits are the multiple: with 2^-24 in the
// multiply-add's constants, a conversion to FP16 rounds to the code and clamps it at 0, where the
// -inf of a hidden score goes too.
//
// Where V has a descale per key it goes into p first, and the row gets a power of two of its own
// that brings its largest weight of the tile into [128, 256):
//
//   w = p * descale_v    code = E4M3(w * 2^e)    unit = 2^-e multiplies the product
#pragma once

#include <cstdint>

#include "sm90/attention/softmax.cuh"
#include "sm90/ptx/convert.cuh"
#include "sm90/ptx/opaque.cuh"

namespace octavo::sm90 {

inline constexpr int kPWords = kScores / 4;

__device__ inline void requantise_p(const float (&p)[kScores], std::uint32_t (&words)[kPWords]) {
#pragma unroll
  for (int word = 0; word < kPWords; ++word) {
    const std::uint32_t low =
        ptx::cvt_e4m3x2(p[score_of_operand(word, 0)], p[score_of_operand(word, 1)]);
    const std::uint32_t high =
        ptx::cvt_e4m3x2(p[score_of_operand(word, 2)], p[score_of_operand(word, 3)]);
    words[word] = low | high << 16;
  }
}

/// `s`: scores; `state`: the maximum of what has been seen, these included.
__device__ inline void direct_codes(const float (&s)[kScores], const float (&factor)[2],
                                    const SoftmaxState& state, std::uint32_t (&words)[kPWords]) {
  constexpr float kUnit = 0x1p-24f;
  float scale[2], offset[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    scale[half] = factor[half] * (8 * kUnit);
    offset[half] = __fmaf_rn(state.m[half], -8 * kUnit, kDirectTop * kUnit);
  }
  const auto code = [&](int r) {
    const int half = fragment_half(r);
    return __fmaf_rn(s[r], scale[half], offset[half]);
  };
#pragma unroll
  for (int word = 0; word < kPWords; ++word) {
    const std::uint32_t low =
        ptx::cvt_relu_f16x2(code(score_of_operand(word, 0)), code(score_of_operand(word, 1)));
    const std::uint32_t high =
        ptx::cvt_relu_f16x2(code(score_of_operand(word, 2)), code(score_of_operand(word, 3)));
    words[word] = __byte_perm(low, high, 0x6420);
  }
}

/// Folds descales of V into one row of p; returns the row's unit.
template <int kHalf>
__device__ inline float fold_row(float (&p)[kScores], const float* v_descale) {
  // Loaded anew for each row: 32 descales in registers would be too many.
  const int thread = ptx::opaque(static_cast<int>(threadIdx.x));
  const float* mine = v_descale + fragment_first_column(thread);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kScoresPerRow; ++i) {
    const int r = score_register(kHalf, i);
    p[r] *= mine[fragment_column(r)];
    largest = fmaxf(largest, p[r]);
  }
  const float scale = fold_scale(quad_max(largest));
#pragma unroll
  for (int i = 0; i < kScoresPerRow; ++i) p[score_register(kHalf, i)] *= scale;
  return 1.0f / scale;
}

/// The sum of a row's weights in FP32 over the four threads that share it.
template <int kHalf>
__device__ inline float row_sum(const float (&p)[kScores]) {
  float even = 0, odd = 0;
#pragma unroll
  for (int i = 0; i < kScoresPerRow; i += 2) {
    even += p[score_register(kHalf, i)];
    odd += p[score_register(kHalf, i + 1)];
  }
  even += odd;
  even += __shfl_xor_sync(0xffffffffu, even, 1);
  return even + __shfl_xor_sync(0xffffffffu, even, 2);
}

}  // namespace octavo::sm90
