// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "octavo/attention.h"
#include "workload/problem.h"

namespace octavo::cli {

/// The call that a problem describes, with nothing behind its tensors: enough to ask the library
/// what it says to it (explain_dispatch), never to compute it.
AttentionParams hollow_call(const workload::Problem& problem);

}  // namespace octavo::cli
