// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace octavo::cli {

/// Writes `text` to `path` ("-": stdout), whole or not at all. Throws Error{io}.
void write_text(const std::string& path, const std::string& text);

/// Throws Error{invalid_argument} where writing `output`, the value of `flag`, would replace the
/// file `input`, whatever names and links lead to it.
void require_other_file(const char* flag, const std::string& output, const std::string& input);

/// "octavo: TEXT" on stderr: errors, and remarks that are no part of a command's output.
void remark(const std::string& text);

}  // namespace octavo::cli
