// SPDX-License-Identifier: Apache-2.0
// Stage `pv`: two-level accumulation of P8 V8.
//
//   acc <- acc * alpha + P8 V8                      tensor-core accumulator, in units of descale_v
//   O   <- O * (product of alpha) + descale_v acc   FP32 registers, every promote_every key tiles
//
// A column of ones beside V makes the product compute the row sums l of P8 too, so that the weights
// that are applied add up to one. FP8 tensor cores keep 14 significant bits, so acc must not grow
// long: promoting after every tile is the default. With promote_every 0 acc runs over all keys, as
// in kernels that do not promote; it is then rescaled from one V descale to the next. Where two
// descales differ by more than 2^40, which would leave FP32's range, acc is promoted early.
//
// Of 16-bit operands acc is an FP32 sum, descale_v 1, and l the sum of P before it is rounded.
#pragma once

#include "emulate/tile.h"

namespace octavo::emulate {

struct PvStep {
  DType v_format;
  Accumulator model;
  int promote_every;
};

void pv(Tile& tile, const KvHead& kv, std::int64_t key_tile, const PvStep& step);

/// Moves acc into O and empties it.
void promote(Tile& tile);

}  // namespace octavo::emulate
