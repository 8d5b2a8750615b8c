// SPDX-License-Identifier: Apache-2.0
// Stage `epilogue`: O / l in the output type, LSE = (m + log2 l - 8) ln 2 + sm_scale * shift.
//
// LSE is the natural log of the true sum: what K smoothing took from the scores is added back. A
// row that saw no key gives O = 0 and LSE = -inf.
#pragma once

#include "emulate/tile.h"

namespace octavo::emulate {

void epilogue(Tile& tile, const AttentionProblem& problem);

}  // namespace octavo::emulate
