// SPDX-License-Identifier: Apache-2.0
// octavo quantize IN -o OUT: codes and descales of every q, k and v in a file.
#include <cmath>
#include <memory>
#include <set>

#include "call_flags.h"
#include "command.h"
#include "io/safetensors.h"
#include "octavo/error.h"
#include "octavo/quantize.h"
#include "octavo/version.h"
#include "output.h"
#include "progress.h"
#include "qkv_file.h"

namespace octavo::cli {
namespace {

constexpr const char* kFooter = R"(
OUT holds q, k and v as I8, F8_E4M3 or F8_E5M2, by recipe, q_descale, k_descale and v_descale (F32,
[1], [b, h], [b, h, blocks] or [b, h, s]) and, where the recipe smooths K, score_shift (F32,
[b, h, s]); of every group of the file, with its prefix. `octavo attend` and `octavo compare` read
it: attention on OUT gives the same bits as attention on IN with the same recipe.

Examples:
  octavo quantize qkv.safetensors -o qkv8.safetensors
  octavo quantize qkv.safetensors -o qkv8.safetensors --recipe strict_causal)";

struct Options {
  std::string input, output, recipe = "default", engine = "auto";
  int threads = 0;
  CallFlags call;
};

// Codes of rotated operands have a padded head dim, so the file must say the scale of the unpadded
// one; and it can say only one for all its groups.
void fix_scale(Call& call, const std::set<std::int64_t>& head_dims, const std::string& path) {
  if (head_dims.size() > 1) {
    throw Error(ErrorCode::unsupported,
                path +
                    ": groups differ in head dim and a padded one needs its softmax scale in the "
                    "metadata; must be quantized in files of their own, or with --scale");
  }
  call.sm_scale = 1.0 / std::sqrt(static_cast<double>(*head_dims.begin()));
}

Metadata describe_output(const Options& options, const Recipe& recipe, const Call& call,
                         Metadata metadata) {
  call.describe_in(metadata);
  metadata["octavo.version"] = version();
  metadata["octavo.recipe"] = recipe_name(recipe);
  metadata["octavo.seed"] = std::to_string(recipe.seed);
  metadata["octavo.source"] = options.input;
  return metadata;
}

int quantize_file(const Options& options) {
  require_other_file("-o", options.output, options.input);
  const auto file = io::SafetensorsFile::open(options.input);
  Call call = resolve(options.call, file.metadata(), options.input);
  const auto prefixes = group_prefixes(file, options.input);
  QuantizeParams params;
  params.recipe = parse_recipe(options.recipe);
  params.key_lengths = call.key_lengths;
  params.engine = options.engine;
  params.threads = options.threads;

  io::SafetensorsWriter writer;
  std::vector<std::unique_ptr<QuantizedQkv>> quantized;  // the writer holds views of them
  std::set<std::int64_t> head_dims;
  bool padded = false;
  Progress progress(static_cast<int>(prefixes.size()));
  for (const std::string& prefix : prefixes) {
    progress.begin_step(static_cast<int>(quantized.size()), "quantizing " + prefix + "q, k, v");
    const Group group = load_group(file, options.input, prefix, call.layout);
    params.q = group.q;
    params.k = group.k;
    params.v = group.v;
    quantized.push_back(std::make_unique<QuantizedQkv>(quantize(params)));
    head_dims.insert(group.q.shape[3]);
    padded |= quantized.back()->q.shape[3] != group.q.shape[3];
    add_quantized(writer, group, call.layout, *quantized.back());
  }
  if (padded && !call.sm_scale) fix_scale(call, head_dims, options.input);
  writer.set_metadata(describe_output(options, params.recipe, call, file.metadata()));
  writer.write(options.output);
  progress.hide();
  remark("quantized " + std::to_string(prefixes.size()) +
         (prefixes.size() == 1 ? " group" : " groups") + " by recipe " +
         recipe_name(params.recipe) + " on " + (options.engine == "sm90" ? "sm90" : "emulate"));
  return kOk;
}

}  // namespace

void set_up_quantize(Command& command) {
  auto options = std::make_shared<Options>();
  command.positional("IN", options->input, "Safetensors file with q, k and v in F32, F16 or BF16");
  command.required("-o,--output", "OUT", options->output, "Safetensors file to write");
  command.option(
      "--recipe", "NAME", options->recipe,
      "per_tensor, per_head, block, fp8, default or strict_causal; +rotate, +smooth, +int8 "
      "or +e5m2 behind it");
  options->call.add_to(command);
  command.group("Where it is computed");
  command.option("--engine", "NAME", options->engine,
                 "auto, emulate or sm90 (the GPU; the same bits)");
  add_threads_flag(command, options->threads);
  command.on_run([options] { return quantize_file(*options); });
  command.footer(kFooter);
}

}  // namespace octavo::cli
