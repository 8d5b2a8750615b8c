// SPDX-License-Identifier: Apache-2.0
// Engines in order of preference: the first automatic one that accepts a problem runs it.
#pragma once

#include <string>
#include <vector>

#include "core/problem.h"

namespace octavo {

struct Engine {
  const char* name;
  const char* description;                                  // what runs where it accepts
  bool automatic;                                           // may be the answer to "auto"
  std::string (*why_unsupported)(const AttentionProblem&);  // empty: accepts
  AttentionStats (*run)(const AttentionProblem&);
};

/// The engine that `requested` ("auto" or a name) leads to. Refusals are printed to stderr where
/// OCTAVO_VERBOSE is "dispatch"; another value gets one warning. Throws Error{invalid_argument} for
/// a name that no engine has, Error{unsupported} with every reason where none accepts.
const Engine& choose_engine(const std::vector<Engine>& ordered, const std::string& requested,
                            const AttentionProblem& problem);

}  // namespace octavo
