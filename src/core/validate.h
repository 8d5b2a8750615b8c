// SPDX-License-Identifier: Apache-2.0
// The one place where arguments are judged. Every sentence names argument, value and rule.
#pragma once

#include <string>

#include "core/problem.h"
#include "octavo/attention.h"
#include "octavo/quantize.h"

namespace octavo {

/// Checks a call and resolves its defaults. Throws Error{invalid_argument}.
AttentionProblem validate(const AttentionParams& params);

/// The same for quantize() and quantize_on_device(): a problem without outputs.
AttentionProblem validate(const QuantizeParams& params);

/// Why no engine that computes in FP8 can take this problem; empty where nothing stands in the way.
std::string why_not_in_fp8(const AttentionProblem& problem);

/// quantize() takes tensors in host memory. Throws Error{invalid_argument}.
void require_host_memory(const AttentionProblem& problem);

}  // namespace octavo
