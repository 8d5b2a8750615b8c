// SPDX-License-Identifier: Apache-2.0
// octavo info: this build, its engines, and what each says to a problem.
#include <iostream>
#include <memory>

#include "command.h"
#include "octavo/cuda.h"
#include "octavo/engine.h"
#include "octavo/error.h"
#include "octavo/version.h"
#include "problem_call.h"
#include "table.h"
#include "workload/problem.h"

namespace octavo::cli {
namespace {

constexpr const char* kFooter = R"(
With PROBLEM (see `octavo gen --help` for the syntax): the verdict of every engine, in the order in
which they are asked; the first that accepts would run, the reference only by name. Nothing is
computed.

Examples:
  octavo info
  octavo info "b2 s4096 h16 d128 causal recipe=strict_causal softmax=direct")";

#ifdef OCTAVO_BUILT_WITH_CUDA
constexpr const char* kCuda =
    "with CUDA: Hopper quantiser and attention, FP8 tensor-core instructions (QGMMA) in the binary";
#else
constexpr const char* kCuda =
    "without CUDA: no Hopper kernels, no FP8 tensor-core instructions in the binary";
#endif

#if defined(__clang__)
constexpr const char* kCompiler = "Clang " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* kCompiler = "GCC " __VERSION__;
#else
constexpr const char* kCompiler = "an unknown compiler";
#endif

// What people ask first of an attention library, one row each.
constexpr std::pair<const char*, const char*> kFeatures[] = {
    {"head dim 64", "s256 h4 d64"},
    {"head dim 96", "s256 h4 d96"},
    {"head dim 128", "s256 h4 d128"},
    {"head dim 192, V 128", "s256 h4 d192 dv128"},
    {"head dim 256", "s256 h4 d256"},
    {"head dim 72 (padded)", "s256 h4 d72"},
    {"F16 operands", "s256 h4 in=f16 out=f16"},
    {"F32 operands", "s256 h4 in=f32 out=f32"},
    {"operands in 8 bits", "s256 h4 in=f8"},
    {"E5M2 keys and values", "s256 h4 recipe=block+e5m2"},
    {"grouped query heads", "s256 hq8 hkv2"},
    {"causal", "s256 h4 causal"},
    {"window", "s256 h4 window=64,0"},
    {"key lengths", "b2 s256 h4 lens=256,17"},
    {"softcap", "s256 h4 softcap=30"},
    {"recipe per_tensor", "s256 h4 recipe=per_tensor"},
    {"recipe per_head", "s256 h4 recipe=per_head"},
    {"recipe block", "s256 h4 recipe=block"},
    {"recipe default", "s256 h4 recipe=default"},
    {"recipe strict_causal", "s256 h4 recipe=strict_causal"},
    {"softmax direct", "s256 h4 softmax=direct"},
    {"direct, strict_causal", "s256 h4 softmax=direct recipe=strict_causal"},
    {"precision bf16", "s256 h4 precision=bf16"},
    {"precision fp16", "s256 h4 precision=fp16"},
    {"[b, h, s, d] views", "s256 h4 layout=bhsd"},
    {"slices of packed QKV", "s256 h4 layout=packed"},
};

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void print_features() {
  std::vector<std::string> header = {"accepts"};
  for (const std::string& name : engine_names()) header.push_back(name);
  Table table(header, "l" + std::string(header.size() - 1, 'l'));
  std::vector<std::string> reasons;  // each once, in order; the table shows their numbers
  for (const auto& [feature, line] : kFeatures) {
    std::vector<std::string> row = {feature};
    for (const EngineVerdict& v : explain_dispatch(hollow_call(workload::parse_problem(line)))) {
      if (v.accepts) {
        row.push_back("yes");
        continue;
      }
      std::size_t i = 0;
      while (i < reasons.size() && reasons[i] != v.reason) ++i;
      if (i == reasons.size()) reasons.push_back(v.reason);
      row.push_back("no (" + std::to_string(i + 1) + ")");
    }
    table.add(row);
  }
  table.print(std::cout);
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    std::cout << "(" << i + 1 << ") " << reasons[i] << "\n";
  }
}

int print_build() {
  std::cout << "octavo " << version() << "\n"
            << "build    " << kCompiler << ", " << OCTAVO_BUILD_TYPE << ", " << kCuda << "\n"
            << "SIMD     " << join(simd_targets()) << " (the first is used)\n"
            << "engines  " << join(engine_names()) << " (asked in this order)\n\n";
  print_features();
  return kOk;
}

/// The Hopper kernel of a problem, whether or not there is a GPU here.
std::string kernel_of(const workload::Problem& problem) {
  try {
    return describe_attention_kernel(hollow_call(problem));
  } catch (const Error& error) {
    return std::string("none: ") + error.what();
  }
}

int print_verdicts(const std::string& line) {
  const workload::Problem problem = workload::parse_problem(line);
  const auto verdicts = explain_dispatch(hollow_call(problem));
  std::cout << workload::format_problem(problem) << "\n";
  Table table({"engine", "verdict", "reason"}, "lll");
  std::string runs;
  for (const EngineVerdict& v : verdicts) {
    if (v.accepts && v.automatic && runs.empty()) runs = v.name;
    table.add({v.name, v.accepts ? "accepts" : "declines", v.reason});
  }
  table.print(std::cout);
  std::cout << "sm90 kernel: " << kernel_of(problem) << "\n";
  std::cout << (runs.empty() ? "\"auto\" runs none." : "\"auto\" runs " + runs + ".") << "\n";
  return kOk;
}

}  // namespace

void set_up_info(Command& command) {
  auto problem = std::make_shared<std::optional<std::string>>();
  command.positional("PROBLEM", *problem, "A problem, in quotes");
  command.on_run([problem] { return *problem ? print_verdicts(**problem) : print_build(); });
  command.footer(kFooter);
}

}  // namespace octavo::cli
