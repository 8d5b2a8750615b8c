// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dispatch.h"

namespace octavo::sm90 {

/// Hopper tensor-core kernels. This version has none yet and says so.
extern const Engine kEngine;

}  // namespace octavo::sm90
