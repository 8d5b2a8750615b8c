// SPDX-License-Identifier: Apache-2.0
// octavo attend IN -o OUT: one attention call on the tensors of a file.
#include <memory>

#include "call_flags.h"
#include "command.h"
#include "engine_note.h"
#include "io/safetensors.h"
#include "octavo/version.h"
#include "output.h"
#include "progress.h"
#include "qkv_file.h"
#include "workload/problem_text.h"
#include "workload/tensor.h"

namespace octavo::cli {
namespace {

constexpr const char* kFooter = R"(
IN holds q, k and v ([b, s, h, d], or [s, h, d] for a batch of 1; --layout bhsd: [b, h, s, d]) in
F32, F16, BF16, FP8 or (q and k) I8; those of 8 bits with q_descale, k_descale and v_descale and,
where K was smoothed, score_shift.
Metadata of IN that flags override: causal (true or false), octavo.window, octavo.softcap,
octavo.sm_scale, octavo.key_lengths, octavo.layout.
OUT gets out, in the same order of dimensions, and with --lse lse ([b, h, s], F32).

Examples:
  octavo attend qkv.safetensors -o out.safetensors --causal
  octavo attend qkv.safetensors -o out.safetensors --prefix layer00. --recipe block --lse
  octavo attend qkv.safetensors -o out.safetensors --precision bf16
  octavo attend qkv8.safetensors -o out.safetensors --softmax direct --out-dtype f32)";

struct Options {
  std::string input, output, prefix, out_dtype = "bf16";
  bool lse = false;
  CallFlags call;
  NumericFlags numeric;
  EngineFlags engine;
};

Metadata describe_output(const Options& options, const AttentionParams& params,
                         const AttentionStats& stats, const Call& call) {
  Metadata metadata;
  call.describe_in(metadata);
  metadata["octavo.version"] = version();
  metadata["octavo.engine"] = stats.engine;
  metadata["octavo.prefix"] = options.prefix;
  if (stats.engine == "reference") return metadata;  // to which the rest does not apply
  metadata["octavo.precision"] = precision_name(stats.precision);
  metadata["octavo.splits"] = options.numeric.splits;
  if (stats.precision != Precision::fp8) return metadata;
  metadata["octavo.softmax"] = softmax_name(params.softmax);
  metadata["octavo.accumulator"] = accumulator_name(params.accumulator);
  metadata["octavo.promote"] = options.numeric.promote;
  if (params.recipe) metadata["octavo.recipe"] = recipe_name(*params.recipe);
  return metadata;
}

int attend(Options& options) {
  require_other_file("-o", options.output, options.input);
  const auto file = io::SafetensorsFile::open(options.input);
  options.prefix = choose_prefix(file, options.input, options.prefix);
  const Call call = resolve(options.call, file.metadata(), options.input);
  const Group group = load_group(file, options.input, options.prefix, call.layout);

  AttentionParams params = make_params(group, call);
  options.numeric.apply(params);
  options.engine.apply(params);
  const auto& q = params.q.shape;
  workload::Tensor out =
      workload::make_tensor(workload::parse_output_dtype("--out-dtype", options.out_dtype),
                            {q[0], q[1], q[2], params.v.shape[3]});
  workload::Tensor lse = workload::make_tensor(DType::f32, {q[0], q[2], q[1]});
  params.out = out.view();
  if (options.lse) params.lse = lse.view();

  AttentionStats stats;
  {
    Progress progress(1);
    progress.begin_step(0, "attention");
    params.progress = progress.callback();
    stats = attention_forward(params);
  }
  io::SafetensorsWriter writer;
  writer.add("out", in_file_order(out.view(), call.layout, group.rank));
  if (options.lse) writer.add("lse", lse.view());
  writer.set_metadata(describe_output(options, params, stats, call));
  writer.write(options.output);
  remark(engine_note(params, stats.engine) + "; " + call.describe());
  return kOk;
}

}  // namespace

void set_up_attend(Command& command) {
  auto options = std::make_shared<Options>();
  command.positional("IN", options->input, "Safetensors file with q, k and v");
  command.required("-o,--output", "OUT", options->output, "Safetensors file to write");
  command.option("--prefix", "TEXT", options->prefix, "What stands before q, k and v in the file");
  command.flag("--lse", options->lse, "Write the log-sum-exp of each row as well");
  command.option("--out-dtype", "DTYPE", options->out_dtype, "f32, f16 or bf16");
  options->call.add_to(command);
  options->numeric.add_to(command);
  options->engine.add_to(command);
  command.on_run([options] { return attend(*options); });
  command.footer(kFooter);
}

}  // namespace octavo::cli
