// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "octavo/error.h"
#include "octavo/tensor.h"

namespace octavo::fuzz {

/// A file without a disk behind it, given new contents for each input.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("octavo-fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0) std::abort();
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void assign(const std::uint8_t* data, std::size_t size) const {
    if (ftruncate(fd_, 0) != 0) std::abort();
    if (pwrite(fd_, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

/// Aborts unless `condition` holds, in every build type.
inline void require(bool condition) {
  if (!condition) std::abort();
}

/// A reader's error has the code io and begins with the file's name.
inline void require_sentence(const Error& error, const std::string& file) {
  require(error.code() == ErrorCode::io);
  require(std::string_view(error.what()).substr(0, file.size() + 2) == file + ": ");
  require(std::string_view(error.what()).find('\n') == std::string_view::npos);
}

/// Reads every element of a row-major view by its own type, so that the sanitizers see a bad
/// address.
template <typename T>
void read_as(const TensorView& view) {
  const auto* data = static_cast<const T*>(view.data);
  T all = 0;
  for (std::int64_t i = 0; i < view.numel(); ++i) all = static_cast<T>(all ^ data[i]);
  volatile T sink = all;
  static_cast<void>(sink);
}

inline void read_all(const TensorView& view) {
  switch (size_of(view.dtype)) {
    case 1: return read_as<std::uint8_t>(view);
    case 2: return read_as<std::uint16_t>(view);
    case 4: return read_as<std::uint32_t>(view);
    default: std::abort();
  }
}

}  // namespace octavo::fuzz
