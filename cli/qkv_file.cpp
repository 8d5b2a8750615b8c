// SPDX-License-Identifier: Apache-2.0
#include "qkv_file.h"

#include <algorithm>

#include "octavo/error.h"

namespace octavo::cli {
namespace {

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

TensorView load_operand(const io::SafetensorsFile& file, const std::string& path,
                        const std::string& name, workload::Layout layout, int& rank) {
  TensorView x = file.tensor(name);
  rank = x.rank;
  if (x.rank != 3 && x.rank != 4) {
    throw Error(ErrorCode::invalid_argument,
                path + ": " + name + " has rank " + std::to_string(x.rank) +
                    "; must have 4 ([b, s, h, d] or [b, h, s, d]), or 3 for a batch of 1");
  }
  if (x.rank == 3) {
    for (int i = 3; i > 0; --i) {
      x.shape[i] = x.shape[i - 1];
      x.stride[i] = x.stride[i - 1];
    }
    x.shape[0] = 1;
    x.stride[0] = x.stride[1] * x.shape[1];
    x.rank = 4;
  }
  return layout == workload::Layout::bhsd ? transposed(x, 1, 2) : x;
}

TensorView load_optional(const io::SafetensorsFile& file, const std::string& name) {
  return file.find(name) == nullptr ? TensorView{} : file.tensor(name);
}

}  // namespace

std::vector<std::string> group_prefixes(const io::SafetensorsFile& file, const std::string& path) {
  std::vector<std::string> prefixes;
  for (const auto& entry : file.entries()) {
    if (entry.name.empty() || entry.name.back() != 'q') continue;
    const std::string prefix = entry.name.substr(0, entry.name.size() - 1);
    if (file.find(prefix + "k") && file.find(prefix + "v")) prefixes.push_back(prefix);
  }
  if (prefixes.empty()) {
    throw Error(ErrorCode::io,
                path +
                    ": holds no q, k and v; must have three tensors with these names, or with a "
                    "common prefix before them (layer00.q, layer00.k, layer00.v)");
  }
  return prefixes;
}

std::string choose_prefix(const io::SafetensorsFile& file, const std::string& path,
                          const std::string& asked) {
  const auto prefixes = group_prefixes(file, path);
  if (asked.empty() && prefixes.size() == 1) return prefixes.front();
  if (std::find(prefixes.begin(), prefixes.end(), asked) != prefixes.end()) return asked;
  const std::string given = asked.empty() ? "left out" : "'" + asked + "'";
  const std::string rule = prefixes.size() == 1 && prefixes.front().empty()
                               ? "left out: q, k and v of this file have no prefix"
                               : "one of those in the file: " + join(prefixes);
  throw Error(ErrorCode::invalid_argument, path + ": --prefix is " + given + "; must be " + rule);
}

Group load_group(const io::SafetensorsFile& file, const std::string& path,
                 const std::string& prefix, workload::Layout layout) {
  Group group;
  group.prefix = prefix;
  int rank = 0;
  group.k = load_operand(file, path, prefix + "k", layout, rank);
  group.v = load_operand(file, path, prefix + "v", layout, rank);
  group.q = load_operand(file, path, prefix + "q", layout, group.rank);
  group.q_descale = load_optional(file, prefix + "q_descale");
  group.k_descale = load_optional(file, prefix + "k_descale");
  group.v_descale = load_optional(file, prefix + "v_descale");
  group.score_shift = load_optional(file, prefix + "score_shift");
  return group;
}

TensorView in_file_order(TensorView x, workload::Layout layout, int rank) {
  if (layout == workload::Layout::bhsd) x = transposed(x, 1, 2);
  if (rank == 4) return x;
  for (int i = 0; i < 3; ++i) {
    x.shape[i] = x.shape[i + 1];
    x.stride[i] = x.stride[i + 1];
  }
  x.rank = 3;
  return x;
}

void add_quantized(io::SafetensorsWriter& writer, const Group& group, workload::Layout layout,
                   QuantizedQkv& qkv) {
  const auto add = [&](const char* name, QuantizedTensor& x) {
    writer.add(group.prefix + name, in_file_order(x.view(), layout, group.rank));
    writer.add(group.prefix + name + "_descale", x.descale_view());
  };
  add("q", qkv.q);
  add("k", qkv.k);
  add("v", qkv.v);
  if (!qkv.score_shift.empty()) {
    writer.add(group.prefix + "score_shift",
               contiguous(qkv.score_shift.data(), DType::f32,
                          {group.q.shape[0], group.q.shape[2], group.q.shape[1]}));
  }
}

}  // namespace octavo::cli
