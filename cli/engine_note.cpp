// SPDX-License-Identifier: Apache-2.0
#include "engine_note.h"

#include "octavo/engine.h"

namespace octavo::cli {

std::string engine_note(const AttentionParams& params, const std::string& ran) {
  if (params.engine != "auto") return ran + " ran, as asked for by --engine";
  std::string declined;
  for (const EngineVerdict& verdict : explain_dispatch(params)) {
    if (verdict.name == ran) break;
    declined += "; " + verdict.name + " declined: " + verdict.reason;
  }
  return ran + " ran (first to accept" + declined + ")";
}

std::string approximate_engine(const AttentionParams& params, const std::string& asked,
                               std::string& reason) {
  if (asked != "auto") {
    reason = why_unsupported(params, asked);
    return reason.empty() ? asked : "";
  }
  for (const EngineVerdict& verdict : explain_dispatch(params)) {
    if (!verdict.automatic) continue;
    if (verdict.accepts) {
      reason.clear();
      return verdict.name;
    }
    reason += (reason.empty() ? "" : "; ") + verdict.name + ": " + verdict.reason;
  }
  return "";
}

}  // namespace octavo::cli
