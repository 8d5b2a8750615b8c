// SPDX-License-Identifier: Apache-2.0
// octavo gen -o OUT PROBLEM: the operands of a one-line problem as a file.
#include <memory>

#include "call_flags.h"
#include "command.h"
#include "io/safetensors.h"
#include "octavo/engine.h"
#include "octavo/error.h"
#include "octavo/version.h"
#include "problem_call.h"
#include "progress.h"
#include "qkv_file.h"
#include "workload/generate.h"
#include "workload/problem.h"
#include "workload/problem_text.h"

namespace octavo::cli {
namespace {

constexpr const char* kFooter = R"(
PROBLEM is one line of extents and settings; what is left out takes its default:
  b1 h1 d128 (or hq, hkv, dv)   s1024 or sq, sk: required    in=bf16|f16|f32|f8    seed=N
  causal | window=L,R | none    softcap=X  scale=X  lens=A,B,..    layout=bshd|bhsd
  dist=normal    N(0, 1)
       outlier   N(0, 1) + N(0, 100) Bernoulli(0.001), the FlashAttention-3 paper's test
       channel   K with an offset of 10 to 50 per channel, the same for all tokens
       sink      key 0 is 300 long along one direction, its value row 1e-3
       wide      row magnitudes over 40 octaves
       uniform   U(-1, 1)
The same line gives the same bytes on every machine. Mask, softcap, scale, key lengths and layout go
into the file's metadata, where attend, compare and quantize find them. in=f8 writes codes and
descales by recipe=NAME. A file does not say how attention on it is computed: precision, recipe
(unless in=f8), softmax, acc, promote, splits, out and layout=packed are refused here; attend has
flags for them.

Examples:
  octavo gen -o qkv.safetensors "s1024 h8 causal dist=outlier seed=7"
  octavo gen -o decode.safetensors "b4 sq1 sk4096 hq32 hkv8 d128 lens=4096,1000,17,1 in=f16")";

struct Options {
  std::string output, problem;
};

// A token that a file cannot hold must not get lost.
void require_storable(const workload::Problem& problem) {
  static const workload::Problem kDefault{};
  const auto refuse = [](const std::string& sentence) {
    throw Error(ErrorCode::invalid_argument, "gen: " + sentence);
  };
  const auto require_left_out = [&](bool left_out, const char* token, const std::string& value,
                                    const char* flag) {
    if (left_out) return;
    refuse(std::string(token) + " is " + workload::quoted(value) +
           "; must be left out, since a file does not say how it is computed (attend has " + flag +
           ")");
  };
  require_left_out(problem.precision == kDefault.precision, "precision",
                   precision_name(problem.precision), "--precision");
  require_left_out(is_fp8(problem.in) || problem.recipe == kDefault.recipe, "recipe",
                   recipe_name(problem.recipe), "--recipe");
  require_left_out(problem.softmax == kDefault.softmax, "softmax", softmax_name(problem.softmax),
                   "--softmax");
  require_left_out(problem.acc == kDefault.acc, "acc", accumulator_name(problem.acc),
                   "--accumulator");
  require_left_out(problem.promote == kDefault.promote, "promote",
                   problem.promote == 0 ? "none" : std::to_string(problem.promote), "--promote");
  require_left_out(problem.splits == kDefault.splits, "splits", std::to_string(problem.splits),
                   "--splits");
  require_left_out(problem.out == kDefault.out, "out", dtype_name(problem.out), "--out-dtype");
  if (problem.layout == workload::Layout::packed) {
    refuse("layout is 'packed'; must be bshd or bhsd, since a file holds q, k and v one by one");
  }
}

int generate_file(const Options& options) {
  const workload::Problem problem = workload::parse_problem(options.problem);
  require_storable(problem);
  explain_dispatch(hollow_call(problem));  // throws where the call makes no sense
  workload::Inputs inputs;
  {
    Progress progress(1);
    progress.begin_step(0, "generating");
    inputs = workload::generate(problem, progress.callback());
  }
  Group group;
  group.q = inputs.q;
  group.k = inputs.k;
  group.v = inputs.v;
  Call call;
  call.mask = problem.mask;
  call.softcap = problem.softcap;
  call.key_lengths = problem.lens;
  call.layout = problem.layout;
  if (is_fp8(problem.in) || problem.scale) {
    call.sm_scale = workload::attention_params(problem, inputs).sm_scale;
  }

  io::SafetensorsWriter writer;
  if (inputs.quantized) {
    add_quantized(writer, group, call.layout, *inputs.quantized);
  } else {
    writer.add("q", in_file_order(inputs.q, call.layout, 4));
    writer.add("k", in_file_order(inputs.k, call.layout, 4));
    writer.add("v", in_file_order(inputs.v, call.layout, 4));
  }
  Metadata metadata;
  call.describe_in(metadata);
  metadata["octavo.version"] = version();
  metadata["octavo.problem"] = workload::format_problem(problem);
  if (inputs.quantized) metadata["octavo.recipe"] = recipe_name(problem.recipe);
  writer.set_metadata(metadata);
  writer.write(options.output);
  return kOk;
}

}  // namespace

void set_up_gen(Command& command) {
  auto options = std::make_shared<Options>();
  command.positional("PROBLEM", options->problem, "The problem, in quotes");
  command.required("-o,--output", "OUT", options->output, "Safetensors file to write");
  command.on_run([options] { return generate_file(*options); });
  command.footer(kFooter);
}

}  // namespace octavo::cli
