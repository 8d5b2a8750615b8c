// SPDX-License-Identifier: Apache-2.0
// Flags that several subcommands share, and the calls that they describe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "octavo/attention.h"
#include "qkv_file.h"
#include "workload/problem.h"

namespace octavo::cli {

using Metadata = std::map<std::string, std::string>;

/// What a call computes, as opposed to how. A flag that is not given leaves the file's metadata,
/// and these the default.
struct CallFlags {
  bool causal = false;
  bool no_mask = false;
  std::optional<std::string> window, softcap, scale, key_lengths, layout;

  void add_to(Command& command);
};

/// The resolved flags.
struct Call {
  MaskSpec mask;
  float softcap = 0;
  std::optional<double> sm_scale;
  std::vector<std::int64_t> key_lengths;
  workload::Layout layout = workload::Layout::bshd;

  /// "causal, softcap 30, ..": what is not the default.
  std::string describe() const;
  /// What a file must say so that these become its defaults.
  void describe_in(Metadata& metadata) const;
};

Call resolve(const CallFlags& flags, const Metadata& metadata, const std::string& path);

/// How a call is computed.
struct NumericFlags {
  std::optional<std::string> recipe;
  std::string precision = "fp8", softmax = "exact", accumulator = "hopper", promote = "1",
              splits = "1";

  void add_to(Command& command);
  void apply(AttentionParams& params) const;
};

/// Where it is computed.
struct EngineFlags {
  std::string engine = "auto";
  int threads = 0;

  void add_to(Command& command);
  void apply(AttentionParams& params) const;
};

/// --threads.
void add_threads_flag(Command& command, int& threads);

/// Operands and call, all but outputs, numerics and engine.
AttentionParams make_params(const Group& group, const Call& call);

}  // namespace octavo::cli
