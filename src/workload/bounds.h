// SPDX-License-Identifier: Apache-2.0
// How far attention in 8 or 16 bits may be, and must be, from the double-precision reference.
#pragma once

#include "workload/problem.h"

namespace octavo::workload {

/// What a comparison must satisfy. Two-sided: an engine closer to the reference than E4M3 (or P in
/// 16 bits) can be has not computed in FP8 (or not rounded P).
struct Bounds {
  double low = 0, high = 0;  ///< of the outputs' relative L2
  double row_cosine = -1;    ///< least cosine of any row
  double lse = 0;            ///< largest difference of any log-sum-exp
};

/// Bounds of an engine against the reference on a problem's distribution, precision, recipe,
/// operand type and softmax scale.
///
/// Set from the extremes of 10,000 random problems (`octavo verify --random`), with some room. The
/// scale of things: rounding V alone to 3 mantissa bits costs 2.6 %, P as much, and errors of the
/// scores come on top. Rounding P to BF16 costs 0.15 %, to FP16 0.02 %.
Bounds reference_bounds(const Problem& problem);

/// Bounds of the GPU kernels against the emulation: the same codes and the same tensor-core sums,
/// so all that differs is the last bits of exponentials, and what they tip over when P is rounded.
Bounds emulation_bounds(const Problem& problem);

}  // namespace octavo::workload
