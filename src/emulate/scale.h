// SPDX-License-Identifier: Apache-2.0
// Stage `scale`: scale = 448 / a multiplies before the cast and is never stored; descale = a / 448
// multiplies after and is (core/quant_block.h holds the definition and its floor).
#pragma once

#include "core/quant_block.h"

namespace octavo::emulate {

inline ScalePair scale(float amax, DType format) { return scale_of(amax, format); }

}  // namespace octavo::emulate
