// SPDX-License-Identifier: Apache-2.0
// Stage `requantise_p`: P8 = E4M3(p), p in (0, 256]; beside 16-bit operands P16 = BF16(p) or
// FP16(p), round to nearest even.
//
//   exact:   code = E4M3(p)
//   direct:  code = round(max(8 t + 120 - 8 m + shift, 0)): an E4M3 pattern is a piecewise linear
//            log2, so the code comes from the score without an exponential (docs/numerics.md)
//   folded:  where V has a descale per key (recipe strict_causal), it goes into P, and P gets a
//            scale of its own, a power of two per row and step:  w = p * descale_v,
//            code = E4M3(w * 2^e) with max w * 2^e in [128, 256), and 2^-e multiplies P V
#pragma once

#include "emulate/tile.h"

namespace octavo::emulate {

struct RequantiseStep {
  const Mask& mask;
  std::int64_t n;          // first key of the step
  const float* v_descale;  // of the step's keys
  bool v_per_token;
  SoftmaxPath path;
  DType format;  // of P
};

/// Fills tile.p and tile.unit, the descale of this step's product with V. Only casts to E4M3 are
/// counted.
void requantise_p(Tile& tile, const RequantiseStep& step, CastCounts& counts);

}  // namespace octavo::emulate
