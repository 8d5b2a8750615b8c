// SPDX-License-Identifier: Apache-2.0
// octavo compare IN: the error of every recipe against the double-precision reference.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>

#include "call_flags.h"
#include "command.h"
#include "compare_report.h"
#include "engine_note.h"
#include "io/safetensors.h"
#include "octavo/error.h"
#include "output.h"
#include "progress.h"
#include "qkv_file.h"
#include "report_page.h"
#include "workload/tensor.h"

namespace octavo::cli {
namespace {

constexpr const char* kFooter = R"(
Every group of q, k and v in IN is computed by each recipe and held against the double-precision
reference; then the default recipe with the other softmax paths and accumulators. Operands that are
quantised already are taken as they are. Outputs are F32: nothing but the 8 bits is measured.

Exit code 1 where NaNs or infinities are not where the reference has them although the operands are
finite. NaNs and infinities of the operands spread over a tile (docs/data_path.md). Exit code 1 also
where --report could not be written; the interpreter is OCTAVO_PYTHON_EXE, or python3.

Examples:
  octavo compare examples/data/smollm2-135m.safetensors
  octavo compare qkv.safetensors --prefix layer00. --all
  octavo compare qkv.safetensors --causal --json - | jq '.groups[].least_error'
  octavo compare qkv.safetensors --report report.html)";

struct Options {
  std::string input;
  std::optional<std::string> prefix, json;
  bool all = false;
  CallFlags call;
  EngineFlags engine;
  ReportPage report;
};

std::vector<Variant> numeric_variants(const std::optional<Recipe>& recipe) {
  std::vector<Variant> variants;
  for (const auto softmax : {SoftmaxPath::exact, SoftmaxPath::direct}) {
    variants.push_back({recipe, softmax, Accumulator::hopper, 1});
    variants.push_back({recipe, softmax, Accumulator::hopper, 0});
    variants.push_back({recipe, softmax, Accumulator::fp32, 1});
  }
  return variants;
}

std::vector<Variant> choose_variants(const Group& group, bool all) {
  if (group.any_quantised()) return numeric_variants(std::nullopt);
  std::vector<Variant> variants;
  for (const std::string& name : recipe_names()) {
    if (!all) {
      variants.push_back({parse_recipe(name)});
      continue;
    }
    for (const Variant& v : numeric_variants(parse_recipe(name))) variants.push_back(v);
  }
  if (!all) {
    // The first is among the recipes above.
    const auto others = numeric_variants(Recipe::standard());
    variants.insert(variants.end(), others.begin() + 1, others.end());
  }
  return variants;
}

std::string dtype_text(const Group& group) {
  if (group.q.dtype == group.k.dtype && group.q.dtype == group.v.dtype) {
    return dtype_name(group.q.dtype);
  }
  return std::string(dtype_name(group.q.dtype)) + ", " + dtype_name(group.k.dtype) + ", " +
         dtype_name(group.v.dtype);
}

std::string shape_text(const Group& group) {
  const auto& q = group.q.shape;
  const auto& k = group.k.shape;
  const auto text = [](const char* name, std::int64_t n) { return name + std::to_string(n); };
  return text("b", q[0]) + text(" sq", q[1]) + text(" sk", k[1]) + text(" hq", q[2]) +
         text(" hkv", k[2]) + text(" d", q[3]) + text(" dv", group.v.shape[3]);
}

// Root mean square of the finite elements: the error of answering 0.
double rms(workload::Tensor& x) {
  workload::Tensor zero = workload::make_tensor(
      x.dtype, std::span<const std::int64_t>(x.shape.data(), static_cast<std::size_t>(x.rank)));
  return workload::compare(x.view(), zero.view()).rmse;
}

std::int64_t count_not_finite(const TensorView& x) {
  std::int64_t count = 0;
  std::vector<float> row(static_cast<std::size_t>(x.shape[x.rank - 1]));
  for (std::int64_t i = 0; i < workload::row_count(x); ++i) {
    workload::load_row(x, i, row);
    count += std::count_if(row.begin(), row.end(), [](float v) { return !std::isfinite(v); });
  }
  return count;
}

struct Outputs {
  workload::Tensor out, lse;

  explicit Outputs(const Group& group)
      : out(workload::make_tensor(
            DType::f32, {group.q.shape[0], group.q.shape[1], group.q.shape[2], group.v.shape[3]})),
        lse(workload::make_tensor(DType::f32,
                                  {group.q.shape[0], group.q.shape[2], group.q.shape[1]})) {
    poison(out);
    poison(lse);
  }
};

// One call into fresh outputs; returns the seconds it took.
double run(AttentionParams params, Outputs& outputs, AttentionStats& stats) {
  params.out = outputs.out.view();
  params.lse = outputs.lse.view();
  const auto start = std::chrono::steady_clock::now();
  stats = attention_forward(params);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One row of the table. An engine that declines leaves its reason there and nothing else.
VariantResult measure_variant(AttentionParams params, const Variant& variant, const Group& group,
                              const std::string& engine, Outputs& reference) {
  VariantResult r;
  r.variant = variant;
  params.recipe = variant.recipe;
  params.softmax = variant.softmax;
  params.accumulator = variant.accumulator;
  params.promote_every = variant.promote;
  Outputs outputs(group);
  params.out = outputs.out.view();
  params.engine = approximate_engine(params, engine, r.declined);
  if (params.engine.empty()) return r;
  r.seconds = run(params, outputs, r.stats);
  r.out = workload::compare(outputs.out.view(), reference.out.view());
  r.lse = workload::compare(outputs.lse.view(), reference.lse.view());
  params.engine = engine;
  r.engine_note = engine_note(params, r.stats.engine);
  return r;
}

// Runs all variants of one group. `step` counts the runs of the progress bar.
GroupResult measure(const Group& group, const Call& call, const Options& options,
                    Progress& progress, int& step) {
  GroupResult result;
  result.prefix = group.prefix;
  result.shape = shape_text(group);
  result.dtype = dtype_text(group);
  result.call = call.describe();
  result.inputs_not_finite =
      count_not_finite(group.q) + count_not_finite(group.k) + count_not_finite(group.v);

  AttentionParams params = make_params(group, call);
  params.progress = progress.callback();
  params.threads = options.engine.threads;
  params.engine = "reference";
  Outputs reference(group);
  AttentionStats reference_stats;
  progress.begin_step(step++, group.prefix + " reference");
  result.reference_seconds = run(params, reference, reference_stats);
  result.reference_rms = rms(reference.out);

  if (!options.all && !group.any_quantised()) result.recipes = recipe_names().size();
  for (const Variant& variant : choose_variants(group, options.all)) {
    progress.begin_step(step++, group.prefix + " " + variant.text());
    result.variants.push_back(
        measure_variant(params, variant, group, options.engine.engine, reference));
  }
  return result;
}

// Exit code, and a remark for every variant whose NaNs or infinities are wrong. Those of the inputs
// may spread: within a tile 0 * NaN is NaN, and an infinity becomes a NaN.
int check_specials(const CompareResult& result) {
  int code = kOk;
  for (const GroupResult& group : result.groups) {
    const std::string prefix = group.prefix.empty() ? "" : group.prefix + " ";
    for (const VariantResult& r : group.variants) {
      if (r.out.masks_agree && r.lse.masks_agree) continue;
      if (group.inputs_not_finite > 0) {
        remark(prefix + "q, k and v hold " + std::to_string(group.inputs_not_finite) +
               " NaNs or infinities: expected, then, that FP8 has them in other places than the "
               "reference (docs/data_path.md, \"NaN and infinities\")");
        break;  // once a group
      }
      code = kComparisonFailed;
      remark(prefix + r.variant.text() +
             ": NaNs or infinities are not where the reference has them (" +
             std::to_string(r.out.nan) + " and " + std::to_string(r.out.inf) + ", reference " +
             std::to_string(r.out.nan_want) + " and " + std::to_string(r.out.inf_want) +
             "); must be there, since q, k and v are finite");
    }
  }
  return code;
}

// The first variant that ran stands for all. Throws Error{unsupported} where none of a group did.
void name_engine(const GroupResult& group, CompareResult& result) {
  for (const VariantResult& r : group.variants) {
    if (!r.ran()) continue;
    result.engine = r.stats.engine;
    result.engine_note = r.engine_note;
    return;
  }
  throw Error(ErrorCode::unsupported, "compare: no engine computes " + group.prefix +
                                          "q, k and v: " + group.variants.front().declined);
}

int compare(const Options& options) {
  if (options.json) require_other_file("--json", *options.json, options.input);
  options.report.check(options.input);
  const auto file = io::SafetensorsFile::open(options.input);
  const Call call = resolve(options.call, file.metadata(), options.input);
  auto prefixes = group_prefixes(file, options.input);
  if (options.prefix) prefixes = {choose_prefix(file, options.input, *options.prefix)};

  std::vector<Group> groups;
  int runs = 0;
  for (const std::string& prefix : prefixes) {
    groups.push_back(load_group(file, options.input, prefix, call.layout));
    runs += 1 + static_cast<int>(choose_variants(groups.back(), options.all).size());
  }
  CompareResult result;
  result.file = options.input;
  const bool tables = options.json != "-";
  Progress progress(runs);
  int step = 0;
  for (const Group& group : groups) {
    result.groups.push_back(measure(group, call, options, progress, step));
    progress.hide();
    name_engine(result.groups.back(), result);
    if (tables) {
      print_group(result.groups.back(), std::cout);
      std::cout << std::flush;
    }
  }
  if (tables) print_summary(result, std::cout);
  if (options.json) write_text(*options.json, to_json(result));
  const int specials = check_specials(result);
  const int report =
      options.report.write(options.input, options.prefix, options.call, options.engine);
  return std::max(specials, report);
}

}  // namespace

void set_up_compare(Command& command) {
  auto options = std::make_shared<Options>();
  command.positional("IN", options->input, "Safetensors file with q, k and v");
  command.option("--prefix", "TEXT", options->prefix, "Only this group (default: all)");
  command.flag("--all", options->all, "Every recipe with every softmax path and accumulator");
  command.option("--json", "FILE|-", options->json,
                 "Write the figures as JSON; -: to stdout, no tables");
  options->report.add_to(command);
  options->call.add_to(command);
  options->engine.add_to(command);
  command.on_run([options] { return compare(*options); });
  command.footer(kFooter);
}

}  // namespace octavo::cli
