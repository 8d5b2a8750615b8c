// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "octavo/attention.h"

namespace octavo {

/// What one engine says to a call.
struct EngineVerdict {
  std::string name;
  bool accepts = false;
  std::string reason;      ///< a sentence: why not, or what would run
  bool automatic = false;  ///< whether "auto" may lead here; the reference runs only by name
};

/// Names in the order in which they are asked: "sm90", "emulate", "reference".
std::vector<std::string> engine_names();

/// Every engine's verdict on a call, in order; the first automatic one that accepts would run under
/// "auto".
/// Throws Error{invalid_argument} where the call itself is wrong.
std::vector<EngineVerdict> explain_dispatch(const AttentionParams& params);

/// Empty where `engine` computes this call, else the reason why not.
std::string why_unsupported(const AttentionParams& params, const std::string& engine);

/// The SIMD targets the emulation can run on here, best first, e.g. {"AVX2", "SSE2"}.
std::vector<std::string> simd_targets();

}  // namespace octavo
