// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/tensor.h"

namespace octavo::io {

/// One tensor as the file describes it; `data` points into the file and may be unaligned.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< as the file spells it: "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::size_t size = 0;  ///< bytes
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< sorted by name, names unique
  std::map<std::string, std::string> metadata;
};

/// The element types of the safetensors format, also those that Octavo does not compute with.
struct SafetensorsDType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;  ///< absent: Octavo has no such type
};

/// nullptr: the format has no type of this name.
const SafetensorsDType* find_safetensors_dtype(std::string_view name);
std::string_view safetensors_dtype_name(DType dtype);

/// Largest header accepted and written, in bytes; the limit of the reference implementation.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// The name under which the header keeps its string-to-string map; no tensor can have it.
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// Reads the header of a whole file's bytes and checks that it describes them to the last one:
/// every tensor inside the file, as large as its shape says, no two sharing a byte, no byte without
/// a tensor. Throws Error{io} with "FILE: reason" otherwise. `file` is for messages alone.
SafetensorsHeader parse_safetensors(const std::string& file, std::span<const std::byte> bytes);

}  // namespace octavo::io
