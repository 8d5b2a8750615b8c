// SPDX-License-Identifier: Apache-2.0
// One attention problem as one line of text: what drives tests, `octavo verify` and `octavo bench`.
//
//   b2 sq1023 sk4096 hq16 hkv4 d128 causal dist=outlier seed=7
//
//   b sq sk hq hkv d dv     extents; s sets sq and sk, h sets hq and hkv; sq and sk are required,
//                           the others default to b1 h1 d128 and dv = d
//   causal                  each query sees keys up to its own position (bottom-right aligned)
//   window=L,R              L keys back and R keys ahead; "all" is no limit on that side
//   none                    no mask (the default)
//   lens=A,B,..             valid keys of each batch entry (default: all sk)
//   scale=X                 softmax scale (default 1 / sqrt(d));  softcap=X
//   precision=fp8|bf16|fp16 what both products multiply; of 16 bits: no recipe, exact, promote=1
//   recipe=NAME             default, per_tensor, per_head, block, strict_causal (+rotate, ..)
//   softmax=exact|direct    acc=hopper|fp32    promote=N|none
//   splits=N                ranges of keys attended by themselves and merged, 1 (the default) to 64
//   in=bf16|f16|f32|f8      f8: quantised beforehand by the recipe and passed with descales;
//                           bf16 unless given, f16 where precision is fp16
//   out=bf16|f16|f32
//   dist=NAME  seed=N       contents, see generate.h
//   layout=bshd|bhsd|packed memory order; packed: Q, K and V are slices of one tensor
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/attention.h"

namespace octavo::workload {

/// What the operands contain; generate.h defines each.
enum class Distribution : std::uint8_t { normal, outlier, channel, sink, wide, uniform };

/// How the operands lie in memory.
enum class Layout : std::uint8_t {
  bshd,    ///< row-major [b, s, h, d]
  bhsd,    ///< row-major [b, h, s, d], seen as [b, s, h, d]
  packed,  ///< slices of one [b, s, hq + 2 hkv, d]; the output has gaps between its rows
};

struct Problem {
  std::int64_t b = 1, sq = 0, sk = 0;
  std::int64_t hq = 1, hkv = 1;
  std::int64_t d = 128, dv = 128;
  MaskSpec mask;
  std::vector<std::int64_t> lens;
  std::optional<double> scale;
  float softcap = 0;
  Precision precision = Precision::fp8;
  Recipe recipe = Recipe::standard();
  SoftmaxPath softmax = SoftmaxPath::exact;
  Accumulator acc = Accumulator::hopper;
  int promote = 1;  ///< 0: "none"
  int splits = 1;
  DType in = DType::bf16;  ///< f8_e4m3 stands for "f8"
  DType out = DType::bf16;
  Distribution dist = Distribution::normal;
  std::uint64_t seed = 0;
  Layout layout = Layout::bshd;

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Throws Error{invalid_argument} naming token, value and rule. Shapes that no engine computes
/// (d = 576, say) are no error here: the library itself refuses them, with its own sentence.
Problem parse_problem(std::string_view line);

/// The shortest line that parse_problem reads back: defaults are left out.
std::string format_problem(const Problem& problem);

/// The recipe that a call names: none where operands are quantised beforehand or nothing is. One
/// that a line sets beside a precision of 16 bits is named all the same, for the library to refuse.
std::optional<Recipe> recipe_of_call(const Problem& problem);

/// What `in` is unless a line sets it.
DType default_input(Precision precision);

/// One problem a line; '#' starts a comment, empty lines are skipped. Throws Error{io} where the
/// file cannot be read, Error{invalid_argument} with file and line number where a line is wrong.
std::vector<Problem> read_problem_file(const std::string& path);

const char* distribution_name(Distribution dist) noexcept;
const char* layout_name(Layout layout) noexcept;

/// (query row, key) pairs that the mask leaves, summed over batch entries, for one head.
std::int64_t visible_pairs(const Problem& problem);

/// Floating-point operations of both products over visible pairs: 2 (d + dv) hq pairs.
double flop_count(const Problem& problem);

}  // namespace octavo::workload
