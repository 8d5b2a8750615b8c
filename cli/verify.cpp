// SPDX-License-Identifier: Apache-2.0
// octavo verify PROBLEM..: one engine held against another on one-line problems.
#include <iostream>
#include <memory>

#include "call_flags.h"
#include "command.h"
#include "octavo/error.h"
#include "progress.h"
#include "table.h"
#include "workload/problem.h"
#include "workload/random_problem.h"
#include "workload/verify.h"

namespace octavo::cli {
namespace {

constexpr const char* kFooter = R"(
Each problem is generated from its seed, run on both engines and judged; see `octavo gen --help` for
the syntax, which also has precision=fp8|bf16|fp16 recipe=NAME softmax=exact|direct acc=hopper|fp32
promote=N|none splits=N in=bf16|f16|f32|f8 out=bf16|f16|f32 layout=packed. Bounds on the error are
two-sided: an emulation closer to the reference than E4M3 can be has not computed in FP8. The
emulation against itself must give the same bits on one thread and on several; else two names must
lead to two engines. A failure prints the line that repeats it; exit code 1.

Examples:
  octavo verify "b2 sq1023 sk4096 hq16 hkv4 d128 causal dist=outlier seed=7"
  octavo verify --file tests/problems/masks.txt
  octavo verify --random 100 --seed 3
  octavo verify "s1023 causal" --engine emulate --against emulate)";

struct Options {
  std::vector<std::string> problems, files;
  std::string engine = "emulate", against = "reference";
  int threads = 0;
  int random = 0;
  std::uint64_t seed = 0;
};

std::vector<workload::Problem> collect(const Options& options) {
  std::vector<workload::Problem> problems;
  for (const std::string& line : options.problems) {
    problems.push_back(workload::parse_problem(line));
  }
  for (const std::string& file : options.files) {
    for (const auto& problem : workload::read_problem_file(file)) problems.push_back(problem);
  }
  for (int i = 0; i < options.random; ++i) {
    problems.push_back(workload::random_problem(options.seed, static_cast<std::uint64_t>(i)));
  }
  if (problems.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "verify: no problem is given; must be a PROBLEM, --file or --random");
  }
  return problems;
}

std::string figures(const workload::Verdict& v) {
  if (v.same) return "bit-equal on one thread and on several";
  return "rel L2 " + percent(v.out.relative_l2, 3) + " (" + percent(v.bounds.low, 3) + " to " +
         percent(v.bounds.high, 3) + "), worst row cosine " + fixed(v.out.worst_row_cosine, 4) +
         ", lse " + significant(v.lse.max_abs, 2);
}

int verify(const Options& options) {
  const auto problems = collect(options);
  int failed = 0;
  Progress progress(static_cast<int>(problems.size()));
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const std::string line = workload::format_problem(problems[i]);
    progress.begin_step(static_cast<int>(i), line);
    const workload::Verdict v = workload::verify_problem(
        problems[i], options.engine, options.against, options.threads, progress.callback());
    progress.hide();
    if (v.ok) {
      std::cout << "ok      " << line << ": " << figures(v) << std::endl;
      continue;
    }
    ++failed;
    std::cout << "FAILED  " << line << ": " << v.why << "; " << figures(v) << "\n"
              << "        octavo verify \"" << line << "\" --engine " << options.engine
              << " --against " << options.against
              << (options.threads > 0 ? " --threads " + std::to_string(options.threads) : "")
              << std::endl;
  }
  std::cout << problems.size() - static_cast<std::size_t>(failed) << " passed, " << failed
            << " failed" << std::endl;
  return failed == 0 ? kOk : kComparisonFailed;
}

}  // namespace

void set_up_verify(Command& command) {
  auto options = std::make_shared<Options>();
  command.positional("PROBLEM", options->problems, "Problems, each in quotes");
  command.option("--file", "FILE", options->files, "Problem file: one a line, # for comments");
  command.option("--random", "N", options->random, 0, 1'000'000, "Make N random problems");
  command.option("--seed", "S", options->seed, "Of the random problems");
  command.option("--engine", "NAME", options->engine, "The engine under test");
  command.option("--against", "NAME", options->against, "The engine that is right");
  add_threads_flag(command, options->threads);
  command.on_run([options] { return verify(*options); });
  command.footer(kFooter);
}

}  // namespace octavo::cli
