// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device.h"

namespace octavo::sm90::ptx {
inline char* dynamic_shared() { return simt::dynamic_shared(); }
}  // namespace octavo::sm90::ptx
