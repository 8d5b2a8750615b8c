// SPDX-License-Identifier: Apache-2.0
// Holds one engine against another on one problem.
#pragma once

#include <string>

#include "workload/bounds.h"
#include "workload/metrics.h"
#include "workload/problem.h"
#include "workload/run.h"

namespace octavo::workload {

struct Verdict {
  bool ok = true;
  std::string why;      ///< a sentence for the first rule that was broken
  std::string engine;   ///< that ran
  std::string against;  ///< likewise
  bool same = false;    ///< one engine against itself: held to bit equality
  Metrics out, lse;
  Bounds bounds;
  double seconds = 0;  ///< of the engine under test
};

/// Judges two results of the same problem.
Verdict judge(const Problem& problem, RunResult& got, RunResult& want);

/// Generates the operands, runs both engines and judges. An engine named twice (not the reference)
/// runs once on one thread and once on `threads`, at least two: the same bits must come out. What
/// else would compare an engine with itself is Error{invalid_argument}. `progress` is called with
/// the share done. Throws Error as attention_forward does.
Verdict verify_problem(const Problem& problem, const std::string& engine,
                       const std::string& against, int threads = 0,
                       const std::function<void(double)>& progress = {});

}  // namespace octavo::workload
