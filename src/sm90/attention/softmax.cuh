// SPDX-License-Identifier: Apache-2.0
// Stage `softmax`: the online softmax in base 2.
//
//   m_new = max(m_old, factor * max S)   alpha = 2^(m_old - m_new)   p = 2^(S * factor - m_new + 8)
//
// p replaces S. Where a row has seen no key, p is 0. In 16 bits m_new is m_old until it is exceeded
// by 7 (core/softmax_constants.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

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

/// The integer maximum of the bit patterns of a thread's scores of one row.
template <int kHalf, int kScores>
__device__ inline int max_of_bits(const float (&s)[kScores]) {
  const auto bits = [&](int i) { return __float_as_int(s[score_register(kHalf, i)]); };
  int a = max(bits(0), bits(1)), b = max(bits(2), bits(3));
#pragma unroll
  for (int i = 4; i < kScores / 2; i += 4) {
    a = __vimax3_s32(a, bits(i), bits(i + 1));
    b = __vimax3_s32(b, bits(i + 2), bits(i + 3));
  }
  return max(a, b);
}

template <int kHalf, int kScores>
__device__ inline float max_of_floats(const float (&s)[kScores]) {
  float a = s[score_register(kHalf, 0)];
#pragma unroll
  for (int i = 1; i < kScores / 2; ++i) a = fmaxf(a, s[score_register(kHalf, i)]);
  return a;
}

/// The maximum over the four threads that share a row.
template <typename T>
__device__ inline T quad_max(T x) {
  x = max(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return max(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/// The largest score of each row, where it matters to the maximum so far. Bit patterns of floats
/// order like integers, of which the maximum of three is one instruction, unless all are negative;
/// what comes out then is some negative number, which a maximum so far of 0 or more hides. Scores
/// beside kInt8Zero are positive, or -inf all of them.
template <typename Traits>
__device__ inline void row_max(const float (&s)[Traits::kScores], const SoftmaxState& state,
                               float (&largest)[2]) {
  const int bits[2] = {quad_max(max_of_bits<0>(s)), quad_max(max_of_bits<1>(s))};
  largest[0] = __int_as_float(bits[0]);
  largest[1] = __int_as_float(bits[1]);
  if constexpr (Traits::kScoreZero > 0) return;
  if (!__all_sync(0xffffffffu, fmaxf(largest[0], state.m[0]) >= 0 &&
                                   fmaxf(largest[1], state.m[1]) >= 0)) [[unlikely]] {
    largest[0] = quad_max(max_of_floats<0>(s));
    largest[1] = quad_max(max_of_floats<1>(s));
  }
}

/// New maxima and the factors alpha that they ask of what has been summed.
template <typename Traits>
__device__ inline void update_max(const float (&s)[Traits::kScores], const float (&factor)[2],
                                  SoftmaxState& state, float (&alpha)[2]) {
  float largest[2];
  row_max<Traits>(s, state, largest);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float m_old = state.m[half];
    const float largest_now = (largest[half] - Traits::kScoreZero) * factor[half];
    const float m_new = Traits::k16Bit ? (largest_now > m_old + kMaximumSlack ? largest_now : m_old)
                                       : fmaxf(m_old, largest_now);
    state.m[half] = m_new;
    alpha[half] = ptx::exp2_approx(m_old - m_new);
  }
}

/// Calls body(step) for steps [kBegin, kEnd), each a constant.
template <int kBegin, int kEnd, typename Body>
__device__ inline void for_steps(const Body& body) {
  if constexpr (kBegin < kEnd) {
    body(std::integral_constant<int, kBegin>());
    for_steps<kBegin + 1, kEnd>(body);
  }
}

/// An offset of scores that `factor` has multiplied, which takes what stands for 0 back out.
template <typename Traits>
__device__ inline float without_zero(float offset, float factor) {
  if constexpr (Traits::kScoreZero == 0) return offset;
  return __fmaf_rn(-Traits::kScoreZero, factor, offset);
}

/// p = 2^(S * factor + offset). A thread's 64 exponentials keep the special function unit busy for
/// 512 clocks, in whose gaps the multiply-adds before and the casts behind them fit, if the
/// compiler spreads them. It does not unless it must: so each group of scores depends on the one
/// before the last, by an addition of 0 * p, which is finite where no score is NaN.
template <typename Traits>
class Exponentials {
 public:
  __device__ Exponentials(const float (&factor)[2], const SoftmaxState& state)
      : factor_{factor[0], factor[1]},
        offset_{without_zero<Traits>(kPExponentShift - state.m[0], factor[0]),
                without_zero<Traits>(kPExponentShift - state.m[1], factor[1])} {}

  /// Of the scores of product kStep; those before it first.
  template <int kStep>
  __device__ void apply(float (&s)[Traits::kScores]) {
    constexpr int kGroup = 8;  // registers: 4 of each row
#pragma unroll
    for (int r = kStep * Traits::kStepScores; r < (kStep + 1) * Traits::kStepScores; ++r) {
      const int half = fragment_half(r);
      if (Traits::kShape.spreads_exponentials && r >= 2 * kGroup &&
          (r % kGroup == 0 || r % kGroup == 2)) {
        offset_[half] = __fmaf_rn(s[r - 2 * kGroup], 0.0f, offset_[half]);
      }
      s[r] = ptx::exp2_approx(__fmaf_rn(s[r], factor_[half], offset_[half]));
    }
  }

 private:
  float factor_[2], offset_[2];
};

/// All scores of a tile.
template <typename Traits>
__device__ inline void exponentiate(float (&s)[Traits::kScores], const float (&factor)[2],
                                    const SoftmaxState& state) {
  Exponentials<Traits> exponentials(factor, state);
  for_steps<0, Traits::kSteps>([&](auto step) { exponentials.template apply<step>(s); });
}

}  // namespace octavo::sm90
