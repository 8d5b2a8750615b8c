// SPDX-License-Identifier: Apache-2.0
#include "emulate/qk.h"

#include <algorithm>

#include "emulate/mma.h"

namespace octavo::emulate {

void qk(Tile& tile, const KvHead& kv, std::int64_t key_tile, DType k_format, Accumulator model) {
  const std::int64_t d = tile.q.cols;
  tile.finite &= tile.k.decode(kv.k.data() + key_tile * d * kBlockN, d, k_format);
  std::fill(tile.s.data(), tile.s + tile.rows * kBlockN, 0.0f);
  mma(model, tile.q.matrix(), tile.k.matrix(), tile.s.data(), kBlockN, tile.rows, kBlockN, d,
      tile.finite);
}

}  // namespace octavo::emulate
