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
#include <type_traits>

#include "sm90/attention/softmax.cuh"
#include "sm90/ptx/convert.cuh"
#include "sm90/ptx/opaque.cuh"

namespace octavo::sm90 {

/// The four words of product kStep, each code4 of four scores' registers.
template <int kStep, typename Code4, int kPWords>
__device__ inline void pack_step(std::uint32_t (&words)[kPWords], const Code4& code4) {
#pragma unroll
  for (int word = 4 * kStep; word < 4 * kStep + 4; ++word) {
    words[word] = code4(score_of_operand(word, 0), score_of_operand(word, 1),
                        score_of_operand(word, 2), score_of_operand(word, 3));
  }
}

/// Of p in place of scores.
template <int kStep, int kScores, int kPWords>
__device__ inline void cast_step(const float (&p)[kScores], std::uint32_t (&words)[kPWords]) {
  pack_step<kStep>(words, [&](int a, int b, int c, int d) {
    const std::uint32_t low = ptx::cvt_e4m3x2(p[a], p[b]), high = ptx::cvt_e4m3x2(p[c], p[d]);
    return low | high << 16;
  });
}

/// The exact path. prepare<kStep> makes p of the scores of product kStep, those before it first;
/// make<kStep> its words.
template <typename Traits>
class ExactCodes {
 public:
  __device__ ExactCodes(const float (&factor)[2], const SoftmaxState& state)
      : exponentials_(factor, state) {}

  template <int kStep>
  __device__ void prepare(float (&s)[Traits::kScores]) {
    exponentials_.template apply<kStep>(s);
  }
  template <int kStep>
  __device__ void make(const float (&p)[Traits::kScores],
                       std::uint32_t (&words)[Traits::kPWords]) const {
    cast_step<kStep>(p, words);
  }

 private:
  Exponentials<Traits> exponentials_;
};

/// The direct path. `state`: the maximum of what has been seen, these scores included.
template <typename Traits>
class DirectCodes {
 public:
  __device__ DirectCodes(const float (&factor)[2], const SoftmaxState& state) {
    constexpr float kUnit = 0x1p-24f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale_[half] = factor[half] * (8 * kUnit);
      offset_[half] = without_zero<Traits>(__fmaf_rn(state.m[half], -8 * kUnit, kDirectTop * kUnit),
                                           scale_[half]);
    }
  }

  template <int kStep>
  __device__ void prepare(float (&)[Traits::kScores]) const {}
  template <int kStep>
  __device__ void make(const float (&s)[Traits::kScores],
                       std::uint32_t (&words)[Traits::kPWords]) const {
    const auto code = [&](int r) {
      return __fmaf_rn(s[r], scale_[fragment_half(r)], offset_[fragment_half(r)]);
    };
    pack_step<kStep>(words, [&](int a, int b, int c, int d) {
      return __byte_perm(ptx::cvt_relu_f16x2(code(a), code(b)),
                         ptx::cvt_relu_f16x2(code(c), code(d)), 0x6420);
    });
  }

 private:
  float scale_[2], offset_[2];
};

/// Where p has been made and folded already.
template <typename Traits>
class FoldedCodes {
 public:
  __device__ FoldedCodes(const float (&)[2], const SoftmaxState&) {}

  template <int kStep>
  __device__ void prepare(float (&)[Traits::kScores]) const {}
  template <int kStep>
  __device__ void make(const float (&p)[Traits::kScores],
                       std::uint32_t (&words)[Traits::kPWords]) const {
    cast_step<kStep>(p, words);
  }
};

/// 16 bits: p rounded to the type of V, two in a word, keys in their own order. Sums are of p
/// itself and of this thread's keys only.
template <typename Traits>
class RoundedP {
 public:
  __device__ RoundedP(const float (&factor)[2], const SoftmaxState& state)
      : exponentials_(factor, state) {}

  template <int kStep>
  __device__ void prepare(float (&s)[Traits::kScores]) {
    exponentials_.template apply<kStep>(s);
#pragma unroll
    for (int r = kStep * Traits::kStepScores; r < (kStep + 1) * Traits::kStepScores; ++r) {
      sum_[fragment_half(r)][r % 2] += s[r];
    }
  }
  template <int kStep>
  __device__ void make(const float (&p)[Traits::kScores],
                       std::uint32_t (&words)[Traits::kPWords]) const {
#pragma unroll
    for (int word = 4 * kStep; word < 4 * kStep + 4; ++word) {
      words[word] = Traits::kKFormat == DType::bf16 ? ptx::cvt_bf16x2(p[2 * word], p[2 * word + 1])
                                                    : ptx::cvt_f16x2(p[2 * word], p[2 * word + 1]);
    }
  }
  __device__ float sum(int half) const { return sum_[half][0] + sum_[half][1]; }

 private:
  Exponentials<Traits> exponentials_;
  float sum_[2][2] = {};
};

template <typename Traits>
using CodesOf = std::conditional_t<
    Traits::Scores::kFoldsV, FoldedCodes<Traits>,
    std::conditional_t<Traits::Scores::kDirect, DirectCodes<Traits>, ExactCodes<Traits>>>;

/// Folds descales of V into one row of p; returns the row's unit.
template <int kHalf, int kScores>
__device__ inline float fold_row(float (&p)[kScores], const float* v_descale) {
  // Loaded anew for each row: 32 descales in registers would be too many.
  const int thread = ptx::opaque(static_cast<int>(threadIdx.x));
  const float* mine = v_descale + fragment_first_column(thread);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) {
    const int r = score_register(kHalf, i);
    p[r] *= mine[fragment_column(r)];
    largest = fmaxf(largest, p[r]);
  }
  const float scale = fold_scale(quad_max(largest));
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) p[score_register(kHalf, i)] *= scale;
  return 1.0f / scale;
}

/// The sum of a row's weights in FP32 over the four threads that share it.
template <int kHalf, int kScores>
__device__ inline float row_sum(const float (&p)[kScores]) {
  float even = 0, odd = 0;
#pragma unroll
  for (int i = 0; i < kScores / 2; i += 2) {
    even += p[score_register(kHalf, i)];
    odd += p[score_register(kHalf, i + 1)];
  }
  even += odd;
  even += __shfl_xor_sync(0xffffffffu, even, 1);
  return even + __shfl_xor_sync(0xffffffffu, even, 2);
}

}  // namespace octavo::sm90
