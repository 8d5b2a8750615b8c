// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dispatch.h"

namespace octavo::reference {

/// Attention in double precision: no blocks, no FP8 but what the operands came in. The mathematics
/// that every other engine is measured against. Recipe, softmax path, accumulator and
/// num_splits concern the ways to compute or approximate it: accepted, and ignored.
extern const Engine kEngine;

}  // namespace octavo::reference
