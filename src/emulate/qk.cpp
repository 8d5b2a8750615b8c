// SPDX-License-Identifier: Apache-2.0
#include "emulate/qk.h"

#include <algorithm>

#include "emulate/mma.h"

namespace octavo::emulate {

void qk(Tile& tile, const KvHead& kv, std::int64_t key_tile, DType format, Accumulator model) {
  const std::int64_t d = tile.q.cols;
  tile.finite &= tile.k.decode(kv.k.data() + key_tile * d * kBlockN, d, format);
  std::fill(tile.s.data(), tile.s + tile.rows * kBlockN, tile.zero);
  // FP32 holds every partial sum of integers, kInt8Zero included.
  const Accumulator sums = format == DType::i8 ? Accumulator::fp32 : model;
  mma(sums, tile.q.matrix(), tile.k.matrix(), tile.s.data(), kBlockN, tile.rows, kBlockN, d,
      tile.finite);
}

}  // namespace octavo::emulate
