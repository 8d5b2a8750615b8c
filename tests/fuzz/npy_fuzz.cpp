// SPDX-License-Identifier: Apache-2.0
// Any bytes are an array that can be read under at least one type, or an Error{io} under each.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "io/npy.h"
#include "io/npy_header.h"
#include "memory_file.h"

namespace {

using namespace octavo;
using namespace octavo::io;

/// From a heap block of the exact size, where the sanitizers see a read past the end: a mapping is
/// padded to a page. Returns whether the header was accepted.
bool parse(std::span<const std::byte> bytes) {
  try {
    fuzz::require(parse_npy_header("input", bytes).data_offset <= bytes.size());
    return true;
  } catch (const Error& error) {
    fuzz::require_sentence(error, "input");
    return false;
  }
}

void read(const std::string& path, std::optional<DType> as, bool header_is_good) {
  try {
    const NpyArray array = read_npy(path, as);
    fuzz::require(header_is_good);
    fuzz::require(!as || array.view.dtype == *as);
    fuzz::read_all(array.view);
  } catch (const Error& error) {
    fuzz::require_sentence(error, path);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile file;
  file.assign(data, size);
  const bool header_is_good = parse({reinterpret_cast<const std::byte*>(data), size});
  for (const std::optional<DType> as :
       {std::optional<DType>{}, {DType::bf16}, {DType::f8_e4m3}, {DType::f8_e5m2}}) {
    read(file.path(), as, header_is_good);
  }
  return 0;
}
