// SPDX-License-Identifier: Apache-2.0
// Any bytes are a file that opens, with all its tensors readable, or an Error{io}.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "memory_file.h"

namespace {

using namespace octavo;
using namespace octavo::io;

/// From a heap block of the exact size, where the sanitizers see a read past the end: a mapping is
/// padded to a page. Returns whether the bytes were accepted.
bool parse(std::span<const std::byte> bytes) {
  try {
    const SafetensorsHeader header = parse_safetensors("input", bytes);
    std::size_t covered = 0;
    for (const SafetensorsEntry& entry : header.entries) {
      fuzz::require(entry.data >= bytes.data() &&
                    entry.data + entry.size <= bytes.data() + bytes.size());
      covered += entry.size;
    }
    fuzz::require(covered <= bytes.size() - 8);
    return true;
  } catch (const Error& error) {
    fuzz::require_sentence(error, "input");
    return false;
  }
}

bool open(const std::string& path) {
  std::optional<SafetensorsFile> file;
  try {
    file = SafetensorsFile::open(path);
  } catch (const Error& error) {
    fuzz::require_sentence(error, path);
    return false;
  }
  for (const SafetensorsEntry& entry : file->entries()) {
    fuzz::require(file->find(entry.name) == &entry);
    try {
      const TensorView view = file->tensor(entry.name);
      fuzz::require(view.numel() * static_cast<std::int64_t>(size_of(view.dtype)) ==
                    static_cast<std::int64_t>(entry.size));
      fuzz::read_all(view);
    } catch (const Error& error) {  // a type or rank that Octavo does not have
      fuzz::require_sentence(error, path);
    }
  }
  return true;
}

void check(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile file;
  file.assign(data, size);
  const bool accepted = parse({reinterpret_cast<const std::byte*>(data), size});
  fuzz::require(open(file.path()) == accepted);
}

/// The same bytes with the header length that they seem to mean, up to the last '}'. Few mutations
/// hit the right length, and with a wrong one nothing behind it is looked at.
std::vector<std::uint8_t> repaired(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> bytes(data, data + size);
  std::uint64_t length = size - 8;
  while (length > 0 && bytes[8 + length - 1] != '}') --length;
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check(data, size);
  if (size > 8) {
    const auto bytes = repaired(data, size);
    check(bytes.data(), bytes.size());
  }
  return 0;
}
