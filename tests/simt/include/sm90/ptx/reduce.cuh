// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device.h"

namespace octavo::sm90::ptx {
inline float redux_max(float x) {
  return __uint_as_float(simt::meet(simt::Meeting::largest, 0, {__float_as_uint(x)})[0]);
}
}  // namespace octavo::sm90::ptx
