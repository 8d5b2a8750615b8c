// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dispatch.h"

namespace octavo::sm90 {

/// Hopper tensor-core kernels; declines where there is no such device.
extern const Engine kEngine;

}  // namespace octavo::sm90
