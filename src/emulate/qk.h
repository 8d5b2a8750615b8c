// SPDX-License-Identifier: Apache-2.0
// Stage `qk`: S = Q8 K8^T, one tile of kBlockM x block_n scores in FP32 accumulators; of INT8 codes
// the exact sum. S = Q16 K16^T of 16-bit operands.
#pragma once

#include "emulate/tile.h"

namespace octavo::emulate {

/// s becomes tile.zero + the product.
void qk(Tile& tile, const KvHead& kv, std::int64_t key_tile, DType format, Accumulator model);

}  // namespace octavo::emulate
