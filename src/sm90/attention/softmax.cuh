// SPDX-License-Identifier: Apache-2.0
// Stage `softmax`: the online softmax in base 2.
//
//   m_new = max(m_old, factor * max S)   alpha = 2^(m_old - m_new)   p = 2^(S * factor - m_new + 8)
//
// p replaces S. Where a row has seen no key, m stays -inf, alpha is 1 and p is 0.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/softmax_constants.h"
#include "sm90/attention/qk.cuh"
#include "sm90/ptx/math.cuh"

namespace octavo::sm90 {

struct SoftmaxState {
  float m[2] = {-INFINITY, -INFINITY};
};

/// Register of the i-th score of a thread's row `half`.
constexpr int score_register(int half, int i) { return i / 2 * 4 + 2 * half + i % 2; }
inline constexpr int kScoresPerRow = kScores / 2;

/// The largest of a thread's scores of one row. Bit patterns of floats that are not all negative
/// order like integers, and the integer maximum of three is one instruction; where all are negative
/// the order is reversed, so the smallest pattern is the answer.
template <int kHalf>
__device__ inline float thread_max(const float (&s)[kScores]) {
  const auto bits = [&](int i) { return __float_as_int(s[score_register(kHalf, i)]); };
  int a = max(bits(0), bits(1)), b = max(bits(2), bits(3));
#pragma unroll
  for (int i = 4; i < kScoresPerRow; i += 4) {
    a = __vimax3_s32(a, bits(i), bits(i + 1));
    b = __vimax3_s32(b, bits(i + 2), bits(i + 3));
  }
  a = max(a, b);
  if (a < 0) {
    auto least = static_cast<std::uint32_t>(a);
#pragma unroll
    for (int i = 0; i < kScoresPerRow; ++i) least = min(least, static_cast<std::uint32_t>(bits(i)));
    return __uint_as_float(least);
  }
  return __int_as_float(a);
}

/// The maximum over the four threads that share a row.
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

template <int kHalf>
__device__ inline float softmax_row(float (&s)[kScores], float factor, SoftmaxState& state) {
  const float m_old = state.m[kHalf];
  const float m_new = fmaxf(m_old, quad_max(thread_max<kHalf>(s)) * factor);
  state.m[kHalf] = m_new;
  const bool seen = m_new != -INFINITY;
  const float offset = kPExponentShift - (seen ? m_new : 0.0f);
#pragma unroll
  for (int i = 0; i < kScoresPerRow; ++i) {
    float& x = s[score_register(kHalf, i)];
    x = ptx::exp2_approx(__fmaf_rn(x, factor, offset));
  }
  return seen ? ptx::exp2_approx(m_old - m_new) : 1.0f;
}

__device__ inline void softmax(float (&s)[kScores], const float (&factor)[2], SoftmaxState& state,
                               float (&alpha)[2]) {
  alpha[0] = softmax_row<0>(s, factor[0], state);
  alpha[1] = softmax_row<1>(s, factor[1], state);
}

}  // namespace octavo::sm90
