// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace octavo {

/// What kind of thing went wrong; each front end maps it to its own habit (exit code, exception).
enum class ErrorCode {
  invalid_argument,  ///< the call itself is wrong: a shape, a value, a missing descale
  unsupported,       ///< the call makes sense, but no engine (or not the one named) computes it
  io,                ///< a file could not be read or written, or is damaged
  cuda,              ///< the CUDA runtime reported an error
};

/// The one exception type of the library. what() is a full sentence naming argument, value and
/// rule.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace octavo
