// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "workload/problem.h"

namespace octavo::workload {

/// Problem `index` of the sequence that `seed` names: odd lengths, every mask, precision, recipe,
/// dtype, layout and distribution, all of them valid calls, each under a second on one core.
Problem random_problem(std::uint64_t seed, std::uint64_t index);

}  // namespace octavo::workload
