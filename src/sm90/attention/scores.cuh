// SPDX-License-Identifier: Apache-2.0
// What happens to scores before the softmax: descales, softcap, mask.
//
//   plain     t = S * factor,  factor = descale_q * descale_k * sm_scale * log2 e, one a row
//   general   a descale per key multiplies S first; softcap: t = cap log2 e * tanh(S * c + shift),
//             factor 1, with c = descale_q * descale_k * sm_scale / cap and K smoothing's shift
//   hidden    S = -inf
#pragma once

#include <cmath>

#include "core/softmax_constants.h"
#include "sm90/attention/args.h"
#include "sm90/attention/qk.cuh"
#include "sm90/attention/visible.cuh"
#include "sm90/ptx/math.cuh"

namespace octavo::sm90 {

/// What a thread keeps of its two rows during a work item.
struct Rows {
  int m = 0;                // the first; the other is 8 below
  float q_descale[2] = {};  // 0 beyond the last row
};

__device__ inline Rows load_rows(const AttentionArgs& args, const WorkItem& item, int m) {
  Rows rows;
  rows.m = m + fragment_row(static_cast<int>(threadIdx.x) % kWarpgroupThreads);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = rows.m + 8 * half;
    if (row < args.sq) rows.q_descale[half] = args.q_descale.at(item.batch, item.head, row);
  }
  return rows;
}

/// q . mean(K) of a row, which K smoothing took from its scores.
__device__ inline float shift_of(const AttentionArgs& args, const WorkItem& item, int row) {
  const bool present = args.score_shift.data != nullptr && row < args.sq;
  return present ? *args.score_shift.at(item.batch, item.head, row) : 0.0f;
}

/// core/softmax_constants.h, clamp_factor.
__device__ inline float clamp_to_normal(float c) {
  return fminf(fmaxf(c, 0x1p-126f), 0x1.fffffep127f);
}

/// tanh within 3e-7: 1 - 2 / (1 + e^(2 x)).
__device__ inline float tanh_of(float x) {
  const float e = ptx::exp2_approx(x * static_cast<float>(2 * kLog2E));
  return __fmaf_rn(-2.0f, __fdividef(1.0f, 1.0f + e), 1.0f);
}

/// S in a form that one factor a row turns into base-2 scores.
template <typename Traits>
__device__ inline void scale_scores(float (&s)[kScores], float (&factor)[2], const Rows& rows,
                                    const WorkItem& item, const AttentionArgs& args,
                                    const float* k_descale) {
  float descale_k = k_descale[0];
  if constexpr (Traits::Scores::kGeneral) {
    if (args.k_per_key) {
      descale_k = 1.0f;
      const float* mine = k_descale + fragment_first_column(static_cast<int>(threadIdx.x));
#pragma unroll
      for (int r = 0; r < kScores; ++r) s[r] *= mine[fragment_column(r)];
    }
    if (args.softcap_scale > 0) {
      float c[2], shift[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        c[half] = clamp_to_normal(rows.q_descale[half] * descale_k * args.softcap_scale);
        shift[half] = shift_of(args, item, rows.m + 8 * half) * args.softcap_scale;
      }
#pragma unroll
      for (int r = 0; r < kScores; ++r) {
        const int half = fragment_half(r);
        s[r] = args.softcap_log2 * tanh_of(__fmaf_rn(s[r], c[half], shift[half]));
      }
      factor[0] = factor[1] = 1.0f;
      return;
    }
  }
  const float common = args.sm_scale_log2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    factor[half] = clamp_to_normal(rows.q_descale[half] * descale_k * common);
  }
}

/// Hides what the mask hides in the tile that begins at key n.
__device__ inline void hide(float (&s)[kScores], const Rows& rows, const WindowMask& mask, int n) {
  const int first = n + fragment_first_column(static_cast<int>(threadIdx.x));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const KeyRange visible = mask.row(rows.m + 8 * half);
    const int begin = static_cast<int>(visible.begin) - first;
    const int end = static_cast<int>(visible.end) - first;
#pragma unroll
    for (int r = 0; r < kScores; ++r) {
      if (fragment_half(r) != half) continue;
      const int column = fragment_column(r);
      if (column < begin || column >= end) s[r] = -INFINITY;
    }
  }
}

}  // namespace octavo::sm90
