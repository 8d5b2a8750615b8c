// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workload/problem.h"

namespace octavo::cli {

/// `octavo bench quantize PROBLEM..`: the GPU quantiser's time and bandwidth beside the rate of a
/// device-to-device copy of the same run. Throws Error{unsupported} without a usable GPU.
int bench_quantize(const std::vector<workload::Problem>& problems, const std::string& rope,
                   int reps, const std::optional<std::string>& json);

}  // namespace octavo::cli
