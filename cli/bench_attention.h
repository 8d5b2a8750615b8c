// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workload/problem.h"

namespace octavo::cli {

/// `octavo bench gpu`: times the Hopper forward pass on device memory, prints a table or JSON.
/// Without problems: 16384 tokens in all, hidden size 2048, 36 points. Throws Error{unsupported}
/// without a Hopper GPU.
int bench_attention(std::vector<workload::Problem> problems, int reps,
                    const std::optional<std::string>& json);

}  // namespace octavo::cli
