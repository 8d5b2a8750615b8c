// SPDX-License-Identifier: Apache-2.0
// Stage `epilogue`: O / l, LSE = (m + log2 l - 8) ln 2 + sm_scale * shift.
//
// LSE is the natural log of the true sum: what K smoothing took from the scores is added back. A
// row that saw no key gives O = 0 and LSE = -inf.
#pragma once

#include "emulate/tile.h"

namespace octavo::emulate {

/// O in FP32, in place, and tile.lse.
void epilogue(Tile& tile, const AttentionProblem& problem);

/// Writes the tile's O, rounded to the output type, and its LSE where the call asks for it.
void store(Tile& tile, const AttentionProblem& problem);

}  // namespace octavo::emulate
