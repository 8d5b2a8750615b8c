// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace octavo::io {

/// A whole regular file mapped into memory, read-only. Unmapped by the destructor; moving keeps the
/// address. The mapping follows the file that was opened: replacing the path (as AtomicFile does)
/// leaves it intact, but a process that shortens the file in place makes later reads fault.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws Error{io} naming the file and the reason: absent, no permission, not a regular file.
  static MappedFile open(const std::filesystem::path& path);

  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& name() const { return name_; }
  /// Page-aligned; empty for an empty file.
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::string name_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace octavo::io
