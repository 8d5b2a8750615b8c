// SPDX-License-Identifier: Apache-2.0
#include "core/dispatch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "octavo/error.h"

namespace octavo {
namespace {

bool verbose() {
  const char* topics = std::getenv("OCTAVO_VERBOSE");
  return topics != nullptr && std::strstr(topics, "dispatch") != nullptr;
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
    if (requested != "auto" && requested != engine.name) continue;
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
