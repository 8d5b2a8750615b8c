// SPDX-License-Identifier: Apache-2.0
// Stage `requantise_p`: P8 = E4M3(p), packed as the A operand of P V. The keys of V^T stand in the
// order that makes this a cast without any exchange between threads (core/kv_order.h).
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
