// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace octavo::io {

/// A file that appears whole or not at all: bytes go to a temporary in the target's folder, and
/// commit() renames it over the target. Destroyed without commit (an exception, say), the temporary
/// is removed and an existing target is what it was.
///
/// Atomic towards other processes, not towards a power cut: nothing is fsynced. A process that is
/// killed leaves its temporary (".octavo-*.tmp") behind.
class AtomicFile {
 public:
  /// Throws Error{io}, like every member, with the target's name and the reason. A target that
  /// exists and is not a regular file (a folder, /dev/null) is refused; of a symbolic link, the
  /// file it leads to is replaced; the permissions of an existing file are kept.
  explicit AtomicFile(const std::filesystem::path& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* bytes, std::size_t count);
  void commit();

  const std::string& name() const { return name_; }

 private:
  void open_temporary();
  void discard() noexcept;

  std::string name_;  ///< as the caller wrote it, for messages
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int fd_ = -1;
};

}  // namespace octavo::io
