// SPDX-License-Identifier: Apache-2.0
#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>

#include "io/sentence.h"

namespace octavo::io {
namespace {

namespace fs = std::filesystem;

// A free name is found at the first attempt unless the random source is broken.
constexpr int kMaxAttempts = 100;

/// Short, so that a target with the longest name the file system allows still gets a temporary.
std::string temporary_name() {
  std::random_device random;
  return ".octavo-" + std::to_string(random()) + std::to_string(random()) + ".tmp";
}

/// Where the bytes must go for `path` to read them: the end of a chain of symbolic links.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path end = fs::canonical(path, error);
  return error ? path : end;
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& target) : name_(target.string()), target_(resolved(target)) {
  struct stat info {};
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) fail(name_, "cannot write: is a directory");
  if (exists && !S_ISREG(info.st_mode)) {
    fail(name_, "cannot write: is a device, pipe or socket; must be a regular file or absent");
  }
  open_temporary();
  if (exists && ::fchmod(fd_, info.st_mode & 0777u) != 0) {
    const int number = errno;
    discard();
    fail_errno(name_, "cannot keep the permissions", number);
  }
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::open_temporary() {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    temporary_ = target_.parent_path() / temporary_name();
    // open rather than mkstemp: mode 0666 cut by the umask is what any other new file gets.
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ >= 0 || errno != EEXIST) break;
  }
  if (fd_ < 0) fail_errno(name_, "cannot create a temporary file beside it", errno);
}

void AtomicFile::write(const void* bytes, std::size_t count) {
  const char* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(fd_, next, count);  // at most 2 GiB at a time on Linux
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(name_, "cannot write", errno);
    next += written;
    count -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  // Some file systems report a full disk only here.
  if (::close(std::exchange(fd_, -1)) != 0) fail_errno(name_, "cannot write", errno);
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail_errno(name_, "cannot put the finished file in place", errno);
  }
  temporary_.clear();
}

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

}  // namespace octavo::io
