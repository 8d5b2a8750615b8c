// SPDX-License-Identifier: Apache-2.0
#include "emulate/qk.h"

#include <algorithm>

#include "emulate/mma.h"

namespace octavo::emulate {

void qk(Tile& tile, const KvHead& kv, std::int64_t key_tile, DType format, Accumulator model) {
  const std::int64_t d = tile.q.cols;
  const auto code_bytes = static_cast<std::int64_t>(size_of(format));
  tile.finite &= tile.k.decode(kv.k.data() + key_tile * d * tile.block_n * code_bytes, d, format);
  std::fill(tile.s.data(), tile.s + tile.rows * tile.block_n, tile.zero);
  // FP32 holds every partial sum of integers, kInt8Zero included.
  mma(accumulator_of(format, model), tile.q.matrix(), tile.k.matrix(), tile.s.data(), tile.block_n,
      tile.rows, tile.block_n, d, tile.finite);
}

}  // namespace octavo::emulate
