// SPDX-License-Identifier: Apache-2.0
// Stage `merge`: what the splits of the keys (core/split.h) gave, made one result by their LSE.
//
//   M   = max_i LSE_i                      w_i = exp(LSE_i - M)
//   O   = sum_i w_i O_i / sum_i w_i        LSE = M + log(sum_i w_i)        FP32, in order of i
//
// A split in which a row sees no key has LSE_i = -inf and is passed over: whatever its O_i holds,
// it adds nothing. A row that sees no key in any gets O = 0 and LSE = -inf. NaN in one split's O_i
// or LSE_i is NaN in the row.
#pragma once

#include <cstdint>

#include "emulate/tile.h"

namespace octavo::emulate {

/// Makes room for `splits` results of a query tile.
void allocate(SplitResults& results, std::int64_t splits, std::int64_t dv);

/// Copies the tile's O and LSE into place `split`.
void keep(SplitResults& results, std::int64_t split, Tile& tile);

/// Merges all into the tile's O and LSE.
void merge(Tile& tile, const SplitResults& results);

}  // namespace octavo::emulate
