// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device.h"

namespace octavo::sm90::ptx {
inline float rcp_approx(float x) { return 1.0f / x; }
inline float max_nan(float a, float b) {
  return a != a || b != b ? __uint_as_float(0x7fffffffu) : std::max(a, b);
}
}  // namespace octavo::sm90::ptx
