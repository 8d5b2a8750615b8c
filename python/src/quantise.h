// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"

namespace octavo::python {

/// quantize() on arrays of Python. Returns (q, k, v, score_shift, head_dim) with a tuple (codes
/// [b, s, h, d], descale, name of the type) an operand, and None for a score_shift that is not
/// there. The arrays own the memory that the library filled.
nb::tuple quantise(nb::handle q, nb::handle k, nb::handle v,
                   const std::vector<std::optional<std::string>>& dtypes, const std::string& layout,
                   const std::string& recipe, std::vector<std::int64_t> key_lengths,
                   std::string engine, int threads);

/// FP8 codes [.., .., .., ..] of any framework and any strides as a numpy array of uint8,
/// row-major: numpy itself imports no FP8.
nb::object copy_codes(nb::handle array, const std::optional<std::string>& dtype);

}  // namespace octavo::python
