// SPDX-License-Identifier: Apache-2.0
// What `octavo compare` measured, as tables and as JSON.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "octavo/attention.h"
#include "workload/metrics.h"

namespace octavo::cli {

/// One way to compute a call.
struct Variant {
  std::optional<Recipe> recipe;  ///< none: the operands are quantised already
  SoftmaxPath softmax = SoftmaxPath::exact;
  Accumulator accumulator = Accumulator::hopper;
  int promote = 1;

  std::string recipe_text() const;
  std::string accumulator_text() const;  ///< "hopper", "unpromoted", "fp32"
  std::string text() const;              ///< "default, exact, hopper"
};

struct VariantResult {
  Variant variant;
  workload::Metrics out, lse;
  AttentionStats stats;
  double seconds = 0;
  std::string declined;     ///< why no engine computes this variant; then nothing else is filled
  std::string engine_note;  ///< which did, and why

  bool ran() const { return declined.empty(); }
};

struct GroupResult {
  std::string prefix;
  std::string shape;  ///< "b1 sq512 sk512 hq9 hkv3 d64 dv64"
  std::string dtype;  ///< of q, k, v
  std::string call;   ///< "causal, softcap 30"
  double reference_seconds = 0;
  double reference_rms = 0;
  std::int64_t inputs_not_finite = 0;  ///< elements of q, k and v
  std::vector<VariantResult> variants;
  std::size_t recipes = 0;  ///< the first of them compare recipes, the others the rest
};

struct CompareResult {
  std::string file;
  std::string engine;       ///< that ran
  std::string engine_note;  ///< and why
  std::vector<GroupResult> groups;
};

void print_group(const GroupResult& group, std::ostream& out);

/// Engine, best recipe of each group, what to try next.
void print_summary(const CompareResult& result, std::ostream& out);

/// Infinite figures become null.
std::string to_json(const CompareResult& result);

}  // namespace octavo::cli
