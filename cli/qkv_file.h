// SPDX-License-Identifier: Apache-2.0
// Q, K and V in safetensors files: where they are, how they lie, what comes with them.
//
// A group is the tensors PREFIXq, PREFIXk and PREFIXv; a file may hold several ("layer00.q", ..) or
// one without prefix. Operands in 8 bits bring PREFIXq_descale and so on, and PREFIXscore_shift
// where K was smoothed. Metadata of the file that describe the call are its defaults: causal
// ("true" or "false"), octavo.window ("L,R"), octavo.softcap, octavo.sm_scale, octavo.key_lengths
// ("A,B,.."), octavo.layout ("bshd" or "bhsd").
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "octavo/attention.h"
#include "octavo/quantize.h"
#include "workload/problem.h"

namespace octavo::cli {

struct Group {
  std::string prefix;
  TensorView q, k, v;  ///< [b, s, h, d], whatever the layout in the file
  TensorView q_descale, k_descale, v_descale, score_shift;
  int rank = 4;  ///< in the file; 3 stands for a batch of 1

  bool any_quantised() const {
    return is_quantised(q.dtype) || is_quantised(k.dtype) || is_quantised(v.dtype);
  }
};

/// The prefixes of all groups in a file, sorted. Throws Error{io} where there is none.
std::vector<std::string> group_prefixes(const io::SafetensorsFile& file, const std::string& path);

/// The prefix to use: `asked`, or the file's only one. Throws Error where that leaves a choice.
std::string choose_prefix(const io::SafetensorsFile& file, const std::string& path,
                          const std::string& asked);

Group load_group(const io::SafetensorsFile& file, const std::string& path,
                 const std::string& prefix, workload::Layout layout);

/// x [b, s, h, d] in the order and rank in which the group's operands lie in their file.
TensorView in_file_order(TensorView x, workload::Layout layout, int rank);

/// Adds codes, descales and score shift of one quantised group. `qkv` must live until the write.
void add_quantized(io::SafetensorsWriter& writer, const Group& group, workload::Layout layout,
                   QuantizedQkv& qkv);

}  // namespace octavo::cli
