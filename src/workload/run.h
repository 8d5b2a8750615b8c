// SPDX-License-Identifier: Apache-2.0
// Runs a problem on an engine.
#pragma once

#include <functional>
#include <string>

#include "octavo/attention.h"
#include "workload/generate.h"
#include "workload/problem.h"
#include "workload/tensor.h"

namespace octavo::workload {

struct RunOptions {
  std::string engine = "auto";
  int threads = 0;  ///< 0: one per core
  std::function<void(double)> progress;
};

/// Outputs of one call. out is a view of out_storage; both outputs held NaN before the run.
struct RunResult {
  Tensor out_storage;
  TensorView out;  ///< [b, sq, hq, dv]
  Tensor lse;      ///< f32 [b, hq, sq]
  AttentionStats stats;
  double seconds = 0;
  std::int64_t stray_writes =
      0;  ///< bytes written between the rows of out (layout=packed has gaps)
};

/// Throws Error as attention_forward does.
RunResult run_problem(const Problem& problem, const Inputs& inputs, const RunOptions& options = {});

}  // namespace octavo::workload
