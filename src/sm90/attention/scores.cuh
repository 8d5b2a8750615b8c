// SPDX-License-Identifier: Apache-2.0
// What happens to scores before the softmax: descales, softcap, mask.
//
//   plain     t = S * factor,  factor = descale_q * descale_k * sm_scale * log2 e, one a row
//   general   a descale per key multiplies S first; softcap: t = cap log2 e * tanh(S * c + shift),
//             factor 1, with c = descale_q * descale_k * sm_scale / cap and K smoothing's shift
//   hidden    S = -inf
//
// S of INT8 is kInt8Zero more where one factor a row is all there is (qk.cuh).
#pragma once

#include <cmath>

#include "core/softmax_constants.h"
#include "sm90/attention/args.h"
#include "sm90/attention/qk.cuh"
#include "sm90/attention/shared.h"
#include "sm90/attention/visible.cuh"
#include "sm90/ptx/math.cuh"
#include "sm90/ptx/opaque.cuh"

namespace octavo::sm90 {

/// A thread's first row of the warpgroup's 64; the other is 8 below.
__device__ inline int own_row(int thread = static_cast<int>(threadIdx.x)) {
  return fragment_row(static_cast<int>(static_cast<unsigned>(thread) % kWarpgroupThreads));
}

/// core/softmax_constants.h, clamp_factor.
__device__ inline float clamp_to_normal(float c, float most = kMostFactor) {
  return ptx::min_nan(ptx::max_nan(c, kLeastFactor), most);
}

/// tanh within 3e-7: 1 - 2 / (1 + e^(2 x)).
__device__ inline float tanh_of(float x) {
  const float e = ptx::exp2_approx(x * static_cast<float>(2 * kLog2E));
  return __fmaf_rn(-2.0f, ptx::rcp_approx(1.0f + e), 1.0f);
}

/// The factors that turn S into base-2 scores, where there is no softcap.
template <typename Traits>
__device__ inline void load_factors(float (&factor)[2], const RowNote* rows,
                                    const AttentionArgs& args, float k_descale) {
  const RowNote* own = rows + own_row(ptx::opaque(static_cast<int>(threadIdx.x)));
  constexpr float kMost = Traits::kScoreZero > 0 ? kInt8MostFactor : kMostFactor;
  factor[0] = clamp_to_normal(own[0].q_descale * k_descale * args.sm_scale_log2, kMost);
  factor[1] = clamp_to_normal(own[8].q_descale * k_descale * args.sm_scale_log2, kMost);
}

/// Softcap, if the call has one.
template <int kScores>
__device__ inline void cap(float (&s)[kScores], float (&factor)[2], const RowNote* rows,
                           const AttentionArgs& args, float k_descale) {
  if (!(args.softcap_scale > 0)) return;
  const RowNote* own = rows + own_row(ptx::opaque(static_cast<int>(threadIdx.x)));
  const float shift[2] = {own[0].shift * args.softcap_scale, own[8].shift * args.softcap_scale};
  float c[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    c[half] = clamp_to_normal(own[8 * half].q_descale * k_descale * args.softcap_scale);
    factor[half] = 1.0f;
  }
#pragma unroll
  for (int r = 0; r < kScores; ++r) {
    const int half = fragment_half(r);
    s[r] = args.softcap_log2 * tanh_of(__fmaf_rn(s[r], c[half], shift[half]));
  }
}

/// Descales per key, and softcap.
template <int kScores>
__device__ inline void transform(float (&s)[kScores], float (&factor)[2], const RowNote* rows,
                                 const AttentionArgs& args, float k_descale,
                                 const float* k_descales) {
  if (args.k_per_key) {
    const float* mine = k_descales + fragment_first_column(static_cast<int>(threadIdx.x));
#pragma unroll
    for (int r = 0; r < kScores; ++r) s[r] *= mine[fragment_column(r)];
  }
  cap(s, factor, rows, args, k_descale);
}

/// Hides what the mask hides in the tile that begins at key n, from rows of which row m is first.
template <int kScores>
__device__ inline void hide(float (&s)[kScores], const KernelMask& mask, int m, int n) {
  const int thread = ptx::opaque(static_cast<int>(threadIdx.x)) % kWarpgroupThreads;
  const int first = n + fragment_first_column(thread), row = m + fragment_row(thread);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // Ends relative to the thread's first column: then columns are constants.
    const auto keys = mask.row(row + 8 * half);
    const int begin = keys.begin - first, end = keys.end - first;
#pragma unroll
    for (int r = 0; r < kScores; ++r) {
      if (fragment_half(r) != half) continue;
      const int column = fragment_column(r);
      if (column < begin || column >= end) s[r] = -INFINITY;
    }
  }
}

}  // namespace octavo::sm90
