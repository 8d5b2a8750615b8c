// SPDX-License-Identifier: Apache-2.0
// Stage `softmax`: the online softmax in base 2, with the descales folded into its one factor.
//
//   t     = S * factor          factor = descale_q * descale_k * sm_scale * log2 e
//   m_new = max(m_old, max t)   alpha = 2^(m_old - m_new)
//   p     = 2^(t - m_new + 8)                                  (exact path)
//   16 bits: m_new = m_old unless max t > m_old + 7
//   l <- l * alpha + sum p      FP32, 8 residues; only where V has a descale per key, or 16 bits
//                               (pv.h)
//
// The factor, the addition and the 8 are one fused multiply-add. A descale per key (recipe
// strict_causal) multiplies S first. With a softcap t = cap log2 e * tanh(..) is computed in place
// and the factor is 1; K smoothing's shift goes back in inside the tanh, which is not blind to it.
// INT8 scores with one factor a row are kInt8Zero + S (core/int8.h): the fused multiply-add takes
// kInt8Zero * factor back out. Hidden keys have S = -inf. A row that has seen no key keeps m =
// -inf, l = 0.
#pragma once

#include "emulate/tile.h"

namespace octavo::emulate {

struct SoftmaxStep {
  const Mask& mask;
  std::int64_t n;          // first key of the step
  const float* k_descale;  // of the step's keys
  bool k_per_token;
  ScoreScale scale;
  SoftmaxPath path;
  float slack;  // of m: kMaximumSlack where P is rounded to 16 bits, else 0
};

void softmax(Tile& tile, const SoftmaxStep& step);

}  // namespace octavo::emulate
