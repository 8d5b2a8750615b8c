// SPDX-License-Identifier: Apache-2.0
#include "call_flags.h"

#include "octavo/error.h"
#include "workload/problem_text.h"

namespace octavo::cli {
namespace {

// A value as text, and the name that errors should use for it.
struct Source {
  std::string name, text;
};

std::optional<Source> from_file(const Metadata& metadata, const std::string& key,
                                const std::string& path) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  return Source{path + ": metadata " + key, found->second};
}

MaskSpec resolve_mask(const CallFlags& flags, const Metadata& metadata, const std::string& path) {
  if (flags.causal) return MaskSpec::causal();
  if (flags.no_mask) return MaskSpec::none();
  if (flags.window) return workload::parse_window("--window", *flags.window);
  const auto window = from_file(metadata, "octavo.window", path);
  const auto causal = from_file(metadata, "causal", path);
  if (causal && causal->text != "true" && causal->text != "false") {
    throw Error(
        ErrorCode::invalid_argument,
        causal->name + " is " + workload::quoted(causal->text) + "; must be 'true' or 'false'");
  }
  const bool is_causal = causal && causal->text == "true";
  if (window && is_causal) {
    throw Error(ErrorCode::invalid_argument,
                causal->name + " is 'true'; must be 'false' beside octavo.window (" +
                    workload::quoted(window->text) + "): a file has one mask");
  }
  if (window) return workload::parse_window(window->name, window->text);
  return is_causal ? MaskSpec::causal() : MaskSpec::none();
}

}  // namespace

void CallFlags::add_to(Command& command) {
  command.group("What is computed (defaults: the file's metadata)");
  command.flag("--causal", causal, "Each query sees keys up to its own position");
  command.option("--window", "L,R", window,
                 "Keys back and ahead that a query sees; 'all' is no limit");
  command.flag("--no-mask", no_mask, "Every query sees every key, whatever the file says");
  command.exclusive({"--causal", "--window", "--no-mask"});
  command.option("--softcap", "X", softcap, "Scores become X tanh(score / X)");
  command.option("--scale", "X", scale, "Softmax scale (default 1 / sqrt(head dim))");
  command.option("--key-lengths", "A,B,..", key_lengths, "Valid keys of each batch entry");
  command.option("--layout", "NAME", layout,
                 "Order of dimensions in the file: bshd (default) or bhsd");
}

Call resolve(const CallFlags& flags, const Metadata& metadata, const std::string& path) {
  const auto source = [&](const char* flag, const std::optional<std::string>& text,
                          const char* key) -> std::optional<Source> {
    if (text) return Source{flag, *text};
    return from_file(metadata, key, path);
  };
  Call call;
  call.mask = resolve_mask(flags, metadata, path);
  if (const auto s = source("--softcap", flags.softcap, "octavo.softcap")) {
    call.softcap = workload::parse_positive_float(s->name, s->text);
  }
  if (const auto s = source("--scale", flags.scale, "octavo.sm_scale")) {
    call.sm_scale = workload::parse_positive(s->name, s->text);
  }
  if (const auto s = source("--key-lengths", flags.key_lengths, "octavo.key_lengths")) {
    call.key_lengths = workload::parse_lengths(s->name, s->text);
  }
  if (const auto s = source("--layout", flags.layout, "octavo.layout")) {
    if (s->text != "bshd" && s->text != "bhsd") {
      throw Error(ErrorCode::invalid_argument,
                  s->name + " is " + workload::quoted(s->text) + "; must be bshd or bhsd");
    }
    call.layout = workload::parse_layout(s->name, s->text);
  }
  return call;
}

std::string Call::describe() const {
  std::string text = mask == MaskSpec::causal() ? "causal"
                     : mask == MaskSpec::none() ? "no mask"
                                                : "window " + workload::window_text(mask);
  if (softcap > 0) text += ", softcap " + workload::number_text(softcap);
  if (sm_scale) text += ", scale " + workload::number_text(*sm_scale);
  if (!key_lengths.empty()) text += ", key lengths " + workload::lengths_text(key_lengths);
  return text;
}

void Call::describe_in(Metadata& metadata) const {
  for (const char* key :
       {"octavo.window", "octavo.softcap", "octavo.sm_scale", "octavo.key_lengths"})
    metadata.erase(key);
  metadata["causal"] = mask == MaskSpec::causal() ? "true" : "false";
  if (mask != MaskSpec::causal() && mask != MaskSpec::none()) {
    metadata["octavo.window"] = workload::window_text(mask);
  }
  if (softcap > 0) metadata["octavo.softcap"] = workload::number_text(softcap);
  if (sm_scale) metadata["octavo.sm_scale"] = workload::number_text(*sm_scale);
  if (!key_lengths.empty()) metadata["octavo.key_lengths"] = workload::lengths_text(key_lengths);
  metadata["octavo.layout"] = workload::layout_name(layout);
}

void NumericFlags::add_to(Command& command) {
  command.group("How it is computed");
  command.option(
      "--precision", "NAME", precision,
      "fp8; bf16 or fp16: operands of that type multiplied as they are; auto: the faster one");
  command.option(
      "--recipe", "NAME", recipe,
      "per_tensor, per_head, block, fp8, default or strict_causal; +rotate, +smooth, +int8 "
      "or +e5m2 behind it (default: default, or block where an operand is quantised already)");
  command.option("--softmax", "PATH", softmax,
                 "exact or direct (E4M3 codes straight from the scores)");
  command.option("--accumulator", "MODEL", accumulator, "hopper (14 bits, truncated) or fp32");
  command.option("--promote", "N", promote, "Key tiles between promotions to FP32, or none");
  command.option("--splits", "N", splits,
                 "Ranges of keys attended by themselves and merged, 1 to 64");
}

void NumericFlags::apply(AttentionParams& params) const {
  params.precision = parse_precision(precision);
  if (recipe) params.recipe = parse_recipe(*recipe);
  params.softmax = parse_softmax(softmax);
  params.accumulator = parse_accumulator(accumulator);
  params.promote_every = workload::parse_promote("--promote", promote);
  params.num_splits = workload::parse_splits("--splits", splits);
}

void EngineFlags::add_to(Command& command) {
  command.group("Where it is computed");
  command.option("--engine", "NAME", engine, "auto, or one of those that `octavo info` lists");
  add_threads_flag(command, threads);
}

void EngineFlags::apply(AttentionParams& params) const {
  params.engine = engine;
  params.threads = threads;
}

void add_threads_flag(Command& command, int& threads) {
  command.option("--threads", "N", threads, 0, 4096, "Of the CPU engines; 0: one per core");
}

AttentionParams make_params(const Group& group, const Call& call) {
  AttentionParams params;
  params.q = group.q;
  params.k = group.k;
  params.v = group.v;
  params.q_descale = group.q_descale;
  params.k_descale = group.k_descale;
  params.v_descale = group.v_descale;
  params.score_shift = group.score_shift;
  params.mask = call.mask;
  params.softcap = call.softcap;
  if (call.sm_scale) params.sm_scale = *call.sm_scale;
  params.key_lengths = call.key_lengths;
  return params;
}

}  // namespace octavo::cli
