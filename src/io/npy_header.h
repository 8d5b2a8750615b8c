// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace octavo::io {

/// What a .npy file says about itself.
struct NpyHeader {
  std::string descr;  ///< numpy's type string: "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;  ///< bytes from the beginning of the file
};

/// Reads magic, version (1.0, 2.0, 3.0) and the dictionary: a Python literal with the keys descr,
/// fortran_order and shape in any order. Does not look at the data. Throws Error{io} with "FILE:
/// reason"; `file` is for messages alone.
NpyHeader parse_npy_header(const std::string& file, std::span<const std::byte> bytes);

}  // namespace octavo::io
