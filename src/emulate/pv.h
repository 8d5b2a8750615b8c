// SPDX-License-Identifier: Apache-2.0
// Stage `pv`: two-level accumulation of P8 V8.
//
//   acc <- acc * alpha + P8 V8                      tensor-core accumulator, in units of descale_v
//   O   <- O * (product of alpha) + descale_v acc   FP32 registers, every promote_every key tiles
//
// FP8 tensor cores keep 14 significant bits, so acc must not grow long: promoting after every tile
// is the default. With promote_every 0 acc runs over all keys, as in kernels that do not promote;
// it is then rescaled from one V descale to the next. Where two descales differ by more than 2^40,
// which would leave FP32's range, acc is promoted early.
#pragma once

#include "emulate/tile.h"

namespace octavo::emulate {

struct PvStep {
  DType v_format;
  Accumulator model;
  int promote_every;
  bool sum_codes;  // direct path: the row sum is a column of ones beside V
};

void pv(Tile& tile, const KvHead& kv, std::int64_t key_tile, const PvStep& step);

/// Moves acc into O and empties it.
void promote(Tile& tile, bool sum_codes);

}  // namespace octavo::emulate
