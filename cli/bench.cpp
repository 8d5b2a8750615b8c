// SPDX-License-Identifier: Apache-2.0
// octavo bench PROBLEM..: end-to-end time of one engine.
#include <sys/resource.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench_attention.h"
#include "bench_quantize.h"
#include "call_flags.h"
#include "command.h"
#include "octavo/error.h"
#include "octavo/version.h"
#include "output.h"
#include "progress.h"
#include "table.h"
#include "workload/problem.h"
#include "workload/problem_text.h"
#include "workload/run.h"

namespace octavo::cli {
namespace {

constexpr const char* kFooter = R"(
Time from 16-bit (or in=f8) operands to the output: median of the repetitions, after one run to warm
up. Operations: 2 (d + dv) for every (query, key) pair that the mask leaves; 4 b h sq sk d without
mask. Peak memory is that of the process so far. Without PROBLEM: s4096, with both accumulators.

octavo bench quantize PROBLEM.. times the GPU quantiser instead: a call's time from memory and from
L2, by graph replay, and its bytes a second beside those of a device-to-device copy.

octavo bench gpu PROBLEM.. times the Hopper forward pass on N(0, 1) in BF16 in device memory: the
kernel alone on quantised operands, with the clock that the multiprocessors had meanwhile, and end
to end, each after 250 ms of rest. Of a problem dist, seed and layout do not count; precision=fp16,
in, acc and promote are refused. Without PROBLEM: the 36 points of the FlashAttention papers.

Examples:
  octavo bench
  octavo bench gpu "b4 s4096 h16 recipe=block" --reps 20
  octavo bench quantize "s16384 h16" --rope half
  octavo bench "s2048 h4 d64 causal" --reps 9
  octavo bench "s4096 acc=fp32" --threads 1 --json -)";

struct Options {
  std::vector<std::string> problems;
  std::optional<std::string> json;
  int reps = 5;
  std::optional<std::string> rope;  // bench quantize only
  EngineFlags engine;
};

struct Timing {
  workload::Problem problem;
  std::string engine;
  std::vector<double> seconds;  // sorted
  std::int64_t peak_bytes = 0;

  double median() const {
    const std::size_t half = seconds.size() / 2;
    return seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
  }
  double gflops() const { return workload::flop_count(problem) / median() / 1e9; }
};

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;  // Linux counts in KiB
}

Timing time_problem(const workload::Problem& problem, const Options& options, Progress& progress,
                    int& step) {
  const std::string line = workload::format_problem(problem);
  const workload::Inputs inputs = workload::generate(problem);
  Timing timing;
  timing.problem = problem;
  for (int rep = 0; rep <= options.reps; ++rep) {
    progress.begin_step(step++, line);
    const auto result = workload::run_problem(
        problem, inputs, {options.engine.engine, options.engine.threads, progress.callback()});
    timing.engine = result.stats.engine;
    if (rep > 0) timing.seconds.push_back(result.seconds);  // the first one warms up
  }
  std::sort(timing.seconds.begin(), timing.seconds.end());
  timing.peak_bytes = peak_resident_bytes();
  return timing;
}

void print(const std::vector<Timing>& timings) {
  Table table({"problem", "engine", "median ms", "fastest ms", "GFLOP/s", "peak MiB"}, "llrrrr");
  for (const Timing& t : timings) {
    table.add({workload::format_problem(t.problem), t.engine, fixed(1e3 * t.median(), 2),
               fixed(1e3 * t.seconds.front(), 2), fixed(t.gflops(), 2),
               fixed(static_cast<double>(t.peak_bytes) / 0x1p20, 0)});
  }
  table.print(std::cout);
}

std::string to_json(const std::vector<Timing>& timings, const Options& options) {
  auto results = nlohmann::ordered_json::array();
  for (const Timing& t : timings) {
    results.push_back({{"problem", workload::format_problem(t.problem)},
                       {"engine", t.engine},
                       {"reps", options.reps},
                       {"threads", options.engine.threads},
                       {"seconds_median", t.median()},
                       {"seconds_min", t.seconds.front()},
                       {"seconds", t.seconds},
                       {"flop", workload::flop_count(t.problem)},
                       {"gflops", t.gflops()},
                       {"peak_rss_bytes", t.peak_bytes}});
  }
  return nlohmann::ordered_json{{"octavo", version()}, {"results", results}}.dump(2) + "\n";
}

/// `octavo bench quantize ..`
int bench_quantiser(const Options& options) {
  const std::string rope = options.rope.value_or("none");
  if (rope != "none" && rope != "half" && rope != "interleaved") {
    throw Error(ErrorCode::invalid_argument,
                "--rope is " + workload::quoted(rope) + "; must be none, half or interleaved");
  }
  std::vector<workload::Problem> problems;
  for (std::size_t i = 1; i < options.problems.size(); ++i) {
    problems.push_back(workload::parse_problem(options.problems[i]));
  }
  if (problems.empty()) {
    for (const char* line : {"s16384 h16", "b4 s4096 h32 d64", "s1024 h16"}) {
      problems.push_back(workload::parse_problem(line));
    }
  }
  return bench_quantize(problems, rope == "none" ? "" : rope, options.reps, options.json);
}

/// `octavo bench gpu ..`
int bench_gpu(const Options& options) {
  std::vector<workload::Problem> problems;
  for (std::size_t i = 1; i < options.problems.size(); ++i) {
    problems.push_back(workload::parse_problem(options.problems[i]));
  }
  return bench_attention(std::move(problems), options.reps, options.json);
}

/// What a benchmark would not do, although an option asks for it.
void require_applied(const Options& options, const std::string& what) {
  if (options.rope && what != "quantize") {
    throw Error(ErrorCode::invalid_argument,
                "--rope is " + workload::quoted(*options.rope) +
                    "; must be left out: only `octavo bench quantize` applies one");
  }
  const bool on_gpu = what == "quantize" || what == "gpu";
  if (on_gpu && options.engine.engine != "auto" && options.engine.engine != "sm90") {
    throw Error(ErrorCode::invalid_argument, "--engine is " +
                                                 workload::quoted(options.engine.engine) +
                                                 "; must be sm90 for bench " + what);
  }
}

int bench(const Options& options) {
  const std::string what = options.problems.empty() ? "" : options.problems[0];
  require_applied(options, what);
  if (what == "gpu") return bench_gpu(options);
  if (what == "quantize") return bench_quantiser(options);
  std::vector<workload::Problem> problems;
  for (const std::string& line : options.problems) {
    problems.push_back(workload::parse_problem(line));
  }
  if (problems.empty()) {
    for (const char* line : {"s4096", "s4096 acc=fp32"}) {
      problems.push_back(workload::parse_problem(line));
    }
  }
  std::vector<Timing> timings;
  {
    Progress progress(static_cast<int>(problems.size()) * (options.reps + 1));
    int step = 0;
    for (const auto& problem : problems) {
      timings.push_back(time_problem(problem, options, progress, step));
    }
  }
  if (options.json != "-") print(timings);
  if (options.json) write_text(*options.json, to_json(timings, options));
  return kOk;
}

}  // namespace

void set_up_bench(Command& command) {
  auto options = std::make_shared<Options>();
  command.positional("PROBLEM", options->problems, "Problems, each in quotes");
  command.option("--reps", "N", options->reps, 1, 10'000, "Timed repetitions");
  command.option("--rope", "none|half|interleaved", options->rope,
                 "bench quantize: with a rotary position embedding (default: none)");
  command.option("--json", "FILE|-", options->json,
                 "Write the figures as JSON; -: to stdout, no table");
  options->engine.add_to(command);
  command.on_run([options] { return bench(*options); });
  command.footer(kFooter);
}

}  // namespace octavo::cli
