// SPDX-License-Identifier: Apache-2.0
// Stage `scale`: scale = 448 / a multiplies before the cast and is never stored; descale = a / 448
// multiplies after and is (core/quant_block.h holds the definition and its floor). Of rotated
// values a is what they would have with the factor 1 / sqrt(n) (core/hadamard.h).
#pragma once

#include "core/hadamard.h"

namespace octavo::emulate {

inline ScalePair scale(float amax, DType format, float norm) {
  return scale_of(amax, format, norm);
}

}  // namespace octavo::emulate
