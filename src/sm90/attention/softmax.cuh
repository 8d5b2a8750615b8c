// SPDX-License-Identifier: Apache-2.0
// Stage `softmax`: the online softmax in base 2.
//
//   m_new = max(m_old, factor * max S)   alpha = 2^(m_old - m_new)   p = 2^(S * factor - m_new + 8)
//
// p replaces S. Where a row has seen no key, p is 0.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/softmax_constants.h"
#include "sm90/attention/qk.cuh"
#include "sm90/ptx/math.cuh"

namespace octavo::sm90 {

/// The maximum of a row that has seen no key: finite, so that nothing below needs a special case.
inline constexpr float kNoKeyYet = -0x1p126f;

struct SoftmaxState {
  float m[2] = {kNoKeyYet, kNoKeyYet};
};

/// Register of the i-th score of a thread's row `half`.
constexpr int score_register(int half, int i) { return i / 2 * 4 + 2 * half + i % 2; }
inline constexpr int kScoresPerRow = kScores / 2;

/// The integer maximum of the bit patterns of a thread's scores of one row.
template <int kHalf>
__device__ inline int max_of_bits(const float (&s)[kScores]) {
  const auto bits = [&](int i) { return __float_as_int(s[score_register(kHalf, i)]); };
  int a = max(bits(0), bits(1)), b = max(bits(2), bits(3));
#pragma unroll
  for (int i = 4; i < kScoresPerRow; i += 4) {
    a = __vimax3_s32(a, bits(i), bits(i + 1));
    b = __vimax3_s32(b, bits(i + 2), bits(i + 3));
  }
  return max(a, b);
}

template <int kHalf>
__device__ inline float max_of_floats(const float (&s)[kScores]) {
  float a = s[score_register(kHalf, 0)];
#pragma unroll
  for (int i = 1; i < kScoresPerRow; ++i) a = fmaxf(a, s[score_register(kHalf, i)]);
  return a;
}

/// The largest of a thread's scores of each row. Bit patterns of floats that are not all negative
/// order like integers, and the integer maximum of three is one instruction.
__device__ inline void thread_max(const float (&s)[kScores], float (&largest)[2]) {
  const int a = max_of_bits<0>(s), b = max_of_bits<1>(s);
  largest[0] = __int_as_float(a);
  largest[1] = __int_as_float(b);
  if (min(a, b) < 0) {
    largest[0] = max_of_floats<0>(s);
    largest[1] = max_of_floats<1>(s);
  }
}

/// The maximum over the four threads that share a row.
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/// New maxima and the factors alpha that they ask of what has been summed.
__device__ inline void update_max(const float (&s)[kScores], const float (&factor)[2],
                                  SoftmaxState& state, float (&alpha)[2]) {
  float largest[2];
  thread_max(s, largest);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float m_old = state.m[half];
    const float m_new = fmaxf(m_old, quad_max(largest[half]) * factor[half]);
    state.m[half] = m_new;
    alpha[half] = ptx::exp2_approx(m_old - m_new);
  }
}

/// p = 2^(S * factor + offset). A thread's 64 exponentials keep the special function unit busy for
/// 512 clocks, in whose gaps the multiply-adds before and the casts behind them fit, if the
/// compiler spreads them. It does not unless it must: so each group of scores depends on the one
/// before the last, by an addition of 0 * p.
template <bool kSpread>
__device__ inline void exponentiate(float (&s)[kScores], const float (&factor)[2],
                                    const SoftmaxState& state) {
  constexpr int kGroup = 8;  // registers: 4 of each row
  float offset[2] = {kPExponentShift - state.m[0], kPExponentShift - state.m[1]};
#pragma unroll
  for (int r = 0; r < kScores; ++r) {
    const int half = fragment_half(r);
    if (kSpread && r >= 2 * kGroup && (r % kGroup == 0 || r % kGroup == 2)) {
      offset[half] = __fmaf_rn(s[r - 2 * kGroup], 0.0f, offset[half]);
    }
    s[r] = ptx::exp2_approx(__fmaf_rn(s[r], factor[half], offset[half]));
  }
}

}  // namespace octavo::sm90
