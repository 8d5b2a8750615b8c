// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace octavo::cli {

/// Writes `text` to `path` ("-": stdout), whole or not at all. Throws Error{io}.
void write_text(const std::string& path, const std::string& text);

/// "octavo: TEXT" on stderr: errors, and remarks that are no part of a command's output.
void remark(const std::string& text);

}  // namespace octavo::cli
