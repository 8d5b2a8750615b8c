// SPDX-License-Identifier: Apache-2.0
#include "core/dispatch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "octavo/error.h"

namespace octavo {
namespace {

/// What OCTAVO_VERBOSE asks for. A value it cannot have is named on stderr, once a process.
bool verbose() {
  const char* value = std::getenv("OCTAVO_VERBOSE");
  if (value == nullptr || *value == '\0') return false;
  if (std::strcmp(value, "dispatch") == 0) return true;
  static std::once_flag warned;
  std::call_once(warned, [value] {
    std::fprintf(stderr, "octavo: OCTAVO_VERBOSE is '%.60s'; must be dispatch, or unset\n", value);
  });
  return false;
}

void say(const char* engine, const std::string& sentence) {
  if (verbose()) std::fprintf(stderr, "octavo dispatch: %s: %s\n", engine, sentence.c_str());
}

std::string join_names(const std::vector<Engine>& engines) {
  std::string names = "auto";
  for (const Engine& engine : engines) names += std::string(", ") + engine.name;
  return names;
}

}  // namespace

const Engine& choose_engine(const std::vector<Engine>& ordered, const std::string& requested,
                            const AttentionProblem& problem) {
  std::string reasons;
  bool known = requested == "auto";
  for (const Engine& engine : ordered) {
    if (requested == "auto" ? !engine.automatic : requested != engine.name) continue;
    known = true;
    const std::string reason = engine.why_unsupported(problem);
    if (reason.empty()) {
      say(engine.name, "runs");
      return engine;
    }
    say(engine.name, reason);
    reasons += std::string(reasons.empty() ? "" : "; ") + engine.name + ": " + reason;
  }
  if (!known) {
    throw Error(ErrorCode::invalid_argument, "attention_forward: engine is '" + requested +
                                                 "'; must be one of " + join_names(ordered));
  }
  throw Error(ErrorCode::unsupported,
              "attention_forward: no engine computes this call: " + reasons);
}

}  // namespace octavo
