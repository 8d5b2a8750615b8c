// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/problem.h"

namespace octavo::sm90 {

/// Why the GPU quantiser cannot take the 16- and 32-bit operands of a call; empty where it can.
std::string why_not_quantised(const AttentionProblem& problem);

}  // namespace octavo::sm90
