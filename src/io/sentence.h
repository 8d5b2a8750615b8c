// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace octavo::io {

/// Throws Error{ErrorCode::io} with the sentence "FILE: reason".
[[noreturn]] void fail(const std::string& file, const std::string& reason);

/// Throws Error{ErrorCode::io} with the sentence "FILE: action: what the system says of `number`".
[[noreturn]] void fail_errno(const std::string& file, const std::string& action, int number);

/// `text` in single quotes, fit for one line of a message: control characters (and whatever is not
/// UTF-8) as \xNN, the middle of a long text left out. Text from a damaged file is never trusted.
std::string in_quotes(std::string_view text);

/// "[2, 3, 64]".
std::string shape_text(std::span<const std::int64_t> shape);

/// Whether `text` is well-formed UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view text);

}  // namespace octavo::io
