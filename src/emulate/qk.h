// SPDX-License-Identifier: Apache-2.0
// Stage `qk`: S = Q8 K8^T, one tile of kBlockM x kBlockN scores in FP32 accumulators.
#pragma once

#include "emulate/tile.h"

namespace octavo::emulate {

void qk(Tile& tile, const KvHead& kv, std::int64_t key_tile, DType k_format, Accumulator model);

}  // namespace octavo::emulate
