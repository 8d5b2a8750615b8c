// SPDX-License-Identifier: Apache-2.0
#include "workload/verify.h"

#include <algorithm>
#include <cstdio>

#include "core/parallel.h"
#include "octavo/error.h"

namespace octavo::workload {
namespace {

std::string percent(double share) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g %%", 100 * share);
  return buffer;
}

std::string number(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g", x);
  return buffer;
}

// What an error below the low bound gives away.
std::string what_did_not_happen(Precision precision) {
  if (precision == Precision::fp8) return "FP8 did not happen";
  return std::string("P was not rounded to ") + precision_name(precision);
}

// The first broken rule, or nothing.
std::string broken_rule(const Problem& problem, const Verdict& v, const RunResult& got) {
  if (got.stray_writes > 0) {
    return std::to_string(got.stray_writes) + " bytes between output rows were written; must be 0";
  }
  if (!v.out.masks_agree) {
    return "NaNs or infinities of out are " + std::to_string(v.out.nan) + " and " +
           std::to_string(v.out.inf) + "; must be where " + v.against + " has its " +
           std::to_string(v.out.nan_want) + " and " + std::to_string(v.out.inf_want);
  }
  if (!v.lse.masks_agree) return "NaNs or infinities of lse differ from those of " + v.against;
  // All-zero outputs (no row sees a key) have no relative error.
  const bool empty = v.out.zeros_want == 1;
  if (!empty && v.out.relative_l2 < v.bounds.low) {
    return "relative L2 is " + percent(v.out.relative_l2) + "; must be at least " +
           percent(v.bounds.low) + ", or " + what_did_not_happen(problem.precision);
  }
  if (v.out.relative_l2 > v.bounds.high) {
    return "relative L2 is " + percent(v.out.relative_l2) + "; must be at most " +
           percent(v.bounds.high);
  }
  if (v.out.worst_row_cosine < v.bounds.row_cosine) {
    return "the worst row's cosine is " + number(v.out.worst_row_cosine) + "; must be at least " +
           number(v.bounds.row_cosine);
  }
  if (v.lse.max_abs > v.bounds.lse) {
    return "lse differs by " + number(v.lse.max_abs) + "; must be within " + number(v.bounds.lse);
  }
  return "";
}

[[noreturn]] void refuse_same(const std::string& ran, const std::string& engine,
                              const std::string& against) {
  throw Error(ErrorCode::invalid_argument, "verify: engine is '" + engine + "' and against is '" +
                                               against + "', and both run " + ran +
                                               "; must lead to two engines: one against itself "
                                               "agrees whatever it computes");
}

}  // namespace

Verdict judge(const Problem& problem, RunResult& got, RunResult& want) {
  Verdict v;
  v.engine = got.stats.engine;
  v.against = want.stats.engine;
  v.same = v.engine == v.against;
  v.seconds = got.seconds;
  v.out = compare(got.out, want.out);
  v.lse = compare(got.lse.view(), want.lse.view());
  if (v.same) {
    if (!bit_equal(got.out, want.out)) v.why = "out differs between two runs; must be bit-equal";
    if (!bit_equal(got.lse.view(), want.lse.view())) {
      v.why = "lse differs between two runs; must be bit-equal";
    }
  } else {
    v.bounds = v.against == "emulate" ? emulation_bounds(problem) : reference_bounds(problem);
    v.why = broken_rule(problem, v, got);
  }
  v.ok = v.why.empty();
  return v;
}

Verdict verify_problem(const Problem& problem, const std::string& engine,
                       const std::string& against, int threads,
                       const std::function<void(double)>& progress) {
  const bool thread_check = engine == against && engine != "auto" && engine != "reference";
  if (engine == against && engine == "reference") refuse_same(engine, engine, against);
  if (thread_check && threads == 1) {
    throw Error(ErrorCode::invalid_argument,
                "verify: threads is 1; must be another number, since an engine against itself runs "
                "once on one thread and once on these");
  }
  if (thread_check) threads = std::max(resolve_threads(threads), 2);
  // The two runs take about half of the time each; generating is short beside them.
  const auto half = [&](double begin) -> std::function<void(double)> {
    if (!progress) return {};
    return [&progress, begin](double share) { progress(begin + share / 2); };
  };
  const Inputs inputs = generate(problem);
  RunResult got = run_problem(problem, inputs, {engine, threads, half(0)});
  const int other_threads = thread_check ? 1 : threads;
  RunResult want = run_problem(problem, inputs, {against, other_threads, half(0.5)});
  if (!thread_check && got.stats.engine == want.stats.engine) {
    refuse_same(got.stats.engine, engine, against);
  }
  return judge(problem, got, want);
}

}  // namespace octavo::workload
