// SPDX-License-Identifier: Apache-2.0
// Stage `scale`: scale and descale from amax (core/quant_block.h), with correctly rounded
// divisions.
#pragma once

#include "sm90/quantize/row_tile.cuh"

namespace octavo::sm90 {

__device__ inline ScalePair scale_on_device(float amax, bool e5m2) {
  const float a = fmaxf(amax, kMinAmax);
  const float top = e5m2 ? kE5m2Max : kE4m3Max;
  return {__fdiv_rn(top, a), __fdiv_rn(a, top)};
}

}  // namespace octavo::sm90
