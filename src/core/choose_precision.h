// SPDX-License-Identifier: Apache-2.0
// Precision::automatic: 8 bits or the operands' own 16, whichever a Hopper GPU should finish first.
//
//   8 bits: flop / rate_8 + bytes / copy rate + launches     16 bits: flop / rate_16
//
// Rates are measured ones (docs/numerics.md); what they are multiplied with is counted here.
#pragma once

#include "core/problem.h"

namespace octavo {

/// fp8, or that of q, k and v. 8 bits where only they can be: operands that are not all of one
/// 16-bit type with rows on 16-byte boundaries (none broadcast), or an embedding.
Precision choose_precision(const AttentionParams& params, const Dims& dims);

}  // namespace octavo
