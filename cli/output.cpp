// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "io/atomic_file.h"
#include "octavo/error.h"

namespace octavo::cli {

void write_text(const std::string& path, const std::string& text) {
  if (path != "-") {
    io::AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
    return;
  }
  std::cout << text << std::flush;
  if (!std::cout) throw Error(ErrorCode::io, "standard output: writing failed");
}

void require_other_file(const char* flag, const std::string& output, const std::string& input) {
  std::error_code absent;  // where one of them does not exist they are not the same
  if (!std::filesystem::equivalent(output, input, absent) || absent) return;
  throw Error(ErrorCode::invalid_argument, std::string(flag) + " is '" + output +
                                               "'; must be another file than IN ('" + input +
                                               "'), which it would replace");
}

void remark(const std::string& text) { std::fprintf(stderr, "octavo: %s\n", text.c_str()); }

}  // namespace octavo::cli
