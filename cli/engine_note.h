// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "octavo/attention.h"

namespace octavo::cli {

/// Which engine a call led to and why: "emulate ran (first to accept; sm90 declined: REASON)".
std::string engine_note(const AttentionParams& params, const std::string& ran);

/// The engine that `asked` ("auto" or a name) leads to, the reference left out unless it is named:
/// comparing the reference with itself says nothing. Empty where none accepts; then `reason` says
/// why.
std::string approximate_engine(const AttentionParams& params, const std::string& asked,
                               std::string& reason);

}  // namespace octavo::cli
