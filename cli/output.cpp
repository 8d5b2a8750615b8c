// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <cstdio>
#include <iostream>

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

void remark(const std::string& text) { std::fprintf(stderr, "octavo: %s\n", text.c_str()); }

}  // namespace octavo::cli
