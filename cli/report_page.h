// SPDX-License-Identifier: Apache-2.0
// The error report of a file as a page, made by the Python package: `python3 -m octavo.report`.
#pragma once

#include <optional>
#include <string>

#include "call_flags.h"

namespace octavo::cli {

struct ReportPage {
  std::optional<std::string> page, png;  ///< where to write them

  void add_to(Command& command);
  /// Throws Error{invalid_argument} for --png alone, and where an output would replace `input`.
  void check(const std::string& input) const;
  /// Runs Python where --report is given: the interpreter that OCTAVO_PYTHON_EXE names, or python3,
  /// with the flags of this call. Returns kComparisonFailed where there is no page afterwards.
  int write(const std::string& input, const std::optional<std::string>& prefix,
            const CallFlags& call, const EngineFlags& engine) const;
};

}  // namespace octavo::cli
