// SPDX-License-Identifier: Apache-2.0
#include "core/validate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "core/choose_precision.h"
#include "core/parallel.h"
#include "core/split.h"
#include "core/tile_table.h"
#include "octavo/error.h"

namespace octavo {
namespace {

std::string text(std::int64_t x) { return std::to_string(x); }

std::string text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", x);
  return buffer;
}

std::string text(const TensorView& x) {
  std::string s = "[";
  for (int i = 0; i < x.rank; ++i) s += (i ? ", " : "") + text(x.shape[i]);
  return s + "]";
}

/// The parts of a sentence: "ARGUMENT is VALUE; must RULE".
struct Refusal {
  std::string argument, value, rule;
};

/// Makes sentences for one function: "FUNCTION: ARGUMENT is VALUE; must be RULE".
class Judge {
 public:
  explicit Judge(const char* function) : function_(function) {}

  [[noreturn]] void refuse(const std::string& sentence) const {
    throw Error(ErrorCode::invalid_argument, std::string(function_) + ": " + sentence);
  }
  /// `refusal` makes the sentence's parts, only where it is needed: calls on a GPU take less time
  /// than putting together what is never said.
  template <typename MakeRefusal>
  void require(bool holds, const MakeRefusal& refusal) const {
    if (holds) return;
    const Refusal because = refusal();
    refuse(because.argument + " is " + because.value + "; must " + because.rule);
  }
  /// x.shape[i] must equal `expected`, which is another argument's extent.
  void same_extent(const char* name, const TensorView& x, int i, const char* other,
                   std::int64_t expected) const {
    require(x.shape[i] == expected, [&] {
      return Refusal{std::string(name) + ".shape[" + text(std::int64_t{i}) + "]", text(x.shape[i]),
                     std::string("equal ") + other + " (" + text(expected) + ")"};
    });
  }

 private:
  const char* function_;
};

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;

/// Rank, extents, strides, pointer: what every tensor must satisfy.
void check_view(const Judge& judge, const char* name, const TensorView& x, int rank) {
  judge.require(x.rank == rank, [&] {
    return Refusal{std::string(name) + ".rank", text(std::int64_t{x.rank}),
                   "be " + text(std::int64_t{rank})};
  });
  std::int64_t numel = 1, reach = 0;
  bool overflow = false;
  for (int i = 0; i < rank; ++i) {
    judge.require(x.shape[i] >= 0 && x.shape[i] <= kMaxExtent, [&] {
      return Refusal{std::string(name) + ".shape[" + text(std::int64_t{i}) + "]", text(x.shape[i]),
                     "be from 0 to 2^40"};
    });
    judge.require(x.stride[i] >= 0, [&] {
      return Refusal{std::string(name) + ".stride[" + text(std::int64_t{i}) + "]",
                     text(x.stride[i]), "not be negative"};
    });
    std::int64_t span = 0;
    overflow |= __builtin_mul_overflow(numel, x.shape[i], &numel);
    overflow |= __builtin_mul_overflow(x.stride[i], x.shape[i], &span);
    overflow |= __builtin_add_overflow(reach, span, &reach);
  }
  constexpr std::int64_t kMaxReach = std::int64_t{1} << 59;  // of elements: bytes fit 63 bits
  if (overflow || numel > kMaxReach || reach > kMaxReach) {
    judge.refuse(std::string(name) + ".shape is " + text(x) + "; its extent must fit 63 bits");
  }
  judge.require(x.data != nullptr || numel == 0, [&] {
    return Refusal{std::string(name) + ".data", "null", "point to " + text(numel) + " elements"};
  });
}

void check_device(const Judge& judge, const char* name, const TensorView& x, Device device) {
  judge.require(x.device == device, [&] {
    return Refusal{std::string("device of ") + name, "another", "be the device of q"};
  });
}

/// Written tensors: no two elements may share an address.
void check_no_overlap(const Judge& judge, const char* name, const TensorView& x) {
  if (x.numel() == 0) return;
  std::int64_t reach = 1;  // elements spanned by the dimensions taken so far, innermost first
  bool taken[kMaxRank] = {};
  for (int step = 0; step < x.rank; ++step) {
    int next = -1;
    for (int i = 0; i < x.rank; ++i) {
      if (!taken[i] && (next < 0 || x.stride[i] < x.stride[next])) next = i;
    }
    taken[next] = true;
    if (x.shape[next] == 1) continue;
    judge.require(x.stride[next] >= reach, [&] {
      return Refusal{std::string(name) + ".stride[" + text(std::int64_t{next}) + "]",
                     text(x.stride[next]),
                     "be at least " + text(reach) + ", or elements would overlap"};
    });
    reach = x.stride[next] * (x.shape[next] - 1) + reach;
  }
}

void check_operand_view(const Judge& judge, const char* name, const TensorView& x) {
  check_view(judge, name, x, 4);
  judge.require(x.stride[3] == 1, [&] {
    return Refusal{std::string(name) + ".stride[3]", text(x.stride[3]),
                   "be 1 (a contiguous last dimension)"};
  });
}

void check_head_dim(const Judge& judge, const char* argument, std::int64_t d) {
  judge.require(d >= kHeadDimMultiple && d <= kMaxHeadDim && d % kHeadDimMultiple == 0, [&] {
    return Refusal{argument, text(d),
                   "be a multiple of 8 from 8 to 256 (64, 96, 128, 192 and 256 run unpadded)"};
  });
}

Dims check_shapes(const Judge& judge, const TensorView& q, const TensorView& k,
                  const TensorView& v) {
  check_operand_view(judge, "q", q);
  check_operand_view(judge, "k", k);
  check_operand_view(judge, "v", v);
  check_head_dim(judge, "q.shape[3]", q.shape[3]);
  check_head_dim(judge, "v.shape[3]", v.shape[3]);
  judge.require(k.shape[2] >= 1, [&] {
    return Refusal{"k.shape[2]", text(k.shape[2]), "be at least 1"};
  });
  judge.same_extent("k", k, 3, "q.shape[3]", q.shape[3]);
  judge.same_extent("k", k, 0, "q.shape[0]", q.shape[0]);
  judge.same_extent("v", v, 0, "q.shape[0]", q.shape[0]);
  judge.same_extent("v", v, 1, "k.shape[1]", k.shape[1]);
  judge.same_extent("v", v, 2, "k.shape[2]", k.shape[2]);
  judge.require(q.shape[2] % k.shape[2] == 0, [&] {
    return Refusal{"q.shape[2]", text(q.shape[2]),
                   "be a multiple of k.shape[2] (" + text(k.shape[2]) + ")"};
  });
  judge.require(q.dtype != DType::f8_e5m2, [&] {
    return Refusal{"q.dtype", "f8_e5m2", "be f32, f16, bf16, f8_e4m3 or i8"};
  });
  judge.require(v.dtype != DType::i8, [&] {
    return Refusal{"v.dtype", "i8", "be f32, f16, bf16, f8_e4m3 or f8_e5m2"};
  });
  judge.require(k.device == q.device && v.device == q.device, [&] {
    return Refusal{"device of k or v", "another", "be the device of q"};
  });
  return {q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]};
}

std::vector<std::int64_t> check_key_lengths(const Judge& judge,
                                            const std::vector<std::int64_t>& lengths,
                                            const Dims& dims) {
  if (lengths.empty()) return std::vector<std::int64_t>(static_cast<std::size_t>(dims.b), dims.sk);
  judge.require(static_cast<std::int64_t>(lengths.size()) == dims.b, [&] {
    return Refusal{"key_lengths.size", text(static_cast<std::int64_t>(lengths.size())),
                   "equal the batch (" + text(dims.b) + ")"};
  });
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    judge.require(lengths[i] >= 0 && lengths[i] <= dims.sk, [&] {
      return Refusal{"key_lengths[" + text(static_cast<std::int64_t>(i)) + "]", text(lengths[i]),
                     "be from 0 to k.shape[1] (" + text(dims.sk) + ")"};
    });
  }
  return lengths;
}

void check_recipe(const Judge& judge, const Recipe& recipe) {
  judge.require(is_fp8(recipe.kv_format), [&] {
    return Refusal{"recipe.kv_format", dtype_name(recipe.kv_format), "be f8_e4m3 or f8_e5m2"};
  });
  judge.require(recipe.qk_format == DType::f8_e4m3 || recipe.qk_format == DType::i8, [&] {
    return Refusal{"recipe.qk_format", dtype_name(recipe.qk_format), "be f8_e4m3 or i8"};
  });
  judge.require(recipe.qk_format != DType::i8 || recipe.kv_format == DType::f8_e4m3, [&] {
    return Refusal{"recipe", recipe_name(recipe), "have one of +int8 and +e5m2"};
  });
}

/// What one operand's descales may look like, and which of those shapes `x` has.
struct DescaleRule {
  const char* name;
  std::int64_t b, heads, heads_kv, rows;
  bool is_query;
  DType codes;

  std::string shapes() const {
    std::string h = text(heads);
    if (is_query && heads_kv != heads) h += " or " + text(heads_kv);
    std::string blocks = text(ceil_div(rows, is_query ? kQuantBlockQ : kQuantBlockKv));
    if (is_query) blocks += ", " + text(ceil_div(rows, kQuantBlockKv));
    return "have shape [h], [b, h], [b, h, blocks] or [b, h, rows] with b " + text(b) + ", h " + h +
           ", blocks " + blocks + ", rows " + text(rows) + ", any of them 1 to broadcast";
  }
};

/// Values can be judged where the host can read them. NaN is INT8's way to say that a block of
/// 16-bit values had one.
void check_descale_values(const Judge& judge, const std::string& name, TensorView x, DType codes) {
  if (x.device.kind != Device::Kind::cpu) return;
  for (; x.rank < 3; ++x.rank) x.shape[x.rank] = 1;
  for (std::int64_t i = 0; i < x.shape[0]; ++i) {
    for (std::int64_t j = 0; j < x.shape[1]; ++j) {
      for (std::int64_t k = 0; k < x.shape[2]; ++k) {
        const std::int64_t at = i * x.stride[0] + j * x.stride[1] + k * x.stride[2];
        const float value = static_cast<const float*>(x.data)[at];
        const bool marks_nan = codes == DType::i8 && std::isnan(value);
        judge.require((std::isfinite(value) && value >= 0) || marks_nan, [&] {
          return Refusal{"an element of " + name, text(double{value}),
                         "be finite and not negative"};
        });
      }
    }
  }
}

DescaleMap check_descale(const Judge& judge, const DescaleRule& rule, const TensorView& x) {
  const std::string name = rule.name;
  judge.require(x.rank >= 1 && x.rank <= 3, [&] {
    return Refusal{name + ".rank", text(std::int64_t{x.rank}), "be 1, 2 or 3"};
  });
  check_view(judge, rule.name, x, x.rank);
  judge.require(x.dtype == DType::f32, [&] {
    return Refusal{name + ".dtype", dtype_name(x.dtype), "be f32"};
  });

  DescaleMap map;
  map.data = static_cast<const float*>(x.data);
  const int head_axis = x.rank == 1 ? 0 : 1;
  const std::int64_t b = x.rank >= 2 ? x.shape[0] : 1;
  const std::int64_t h = x.shape[head_axis];
  const std::int64_t n = x.rank == 3 ? x.shape[2] : 1;

  const bool per_kv_head = rule.is_query && h == rule.heads_kv && h != rule.heads;
  const bool head_ok = h == 1 || h == rule.heads || per_kv_head;
  bool rows_ok = true;
  if (n == 1) {
    map.rows_per_block = std::max<std::int64_t>(rule.rows, 1);
  } else if (rule.is_query && n == ceil_div(rule.rows, kQuantBlockQ)) {
    map.rows_per_block = kQuantBlockQ;
  } else if (n == ceil_div(rule.rows, kQuantBlockKv)) {
    map.rows_per_block = kQuantBlockKv;
  } else {
    map.rows_per_block = 1;
    rows_ok = n == rule.rows;
  }
  judge.require((b == 1 || b == rule.b) && head_ok && rows_ok, [&] {
    return Refusal{name + ".shape", text(x), rule.shapes()};
  });
  check_descale_values(judge, name, x, rule.codes);

  map.granularity = n > 1 ? (map.rows_per_block == 1 ? Granularity::token : Granularity::block)
                          : (b * h > 1 ? Granularity::head : Granularity::tensor);
  map.stride_b = b == 1 ? 0 : x.stride[0];
  map.stride_h = h == 1 ? 0 : x.stride[head_axis];
  map.stride_block = n == 1 ? 0 : x.stride[2];
  map.heads_per_entry = per_kv_head ? rule.heads / rule.heads_kv : 1;
  return map;
}

Operand check_operand(const Judge& judge, const char* name, const TensorView& x,
                      const TensorView& descale, const DescaleRule& rule) {
  Operand operand{x, {}};
  if (operand.quantised()) {
    if (!descale.present()) {
      judge.refuse(std::string(rule.name) + " is missing; must be given, since " + name + " is " +
                   dtype_name(x.dtype) + " (a descale of 1 is never assumed)");
    }
    check_device(judge, rule.name, descale, x.device);
    operand.descale = check_descale(judge, rule, descale);
  } else if (descale.present()) {
    judge.refuse(std::string(rule.name) + " is given; must be left out, since " + name + " is " +
                 dtype_name(x.dtype) + ", which the recipe quantises");
  }
  return operand;
}

void check_operands(const Judge& judge, const AttentionParams& params, AttentionProblem& problem) {
  const Dims& n = problem.dims;
  problem.q = check_operand(judge, "q", params.q, params.q_descale,
                            {"q_descale", n.b, n.hq, n.hkv, n.sq, true, params.q.dtype});
  problem.k = check_operand(judge, "k", params.k, params.k_descale,
                            {"k_descale", n.b, n.hkv, n.hkv, n.sk, false, params.k.dtype});
  problem.v = check_operand(judge, "v", params.v, params.v_descale,
                            {"v_descale", n.b, n.hkv, n.hkv, n.sk, false, params.v.dtype});
}

/// The recipe of a call: it must be able to act on the operands it names.
Recipe resolve_recipe(const Judge& judge, const AttentionParams& params,
                      const AttentionProblem& problem) {
  const bool q8 = problem.q.quantised(), k8 = problem.k.quantised(), v8 = problem.v.quantised();
  if (!params.recipe) {
    Recipe recipe = (q8 || k8 || v8) ? Recipe::block() : Recipe::standard();
    // What is left in 16 bits goes with what is not.
    if (problem.q.x.dtype == DType::i8 || problem.k.x.dtype == DType::i8) {
      recipe.qk_format = DType::i8;
    }
    return recipe;
  }
  const Recipe recipe = *params.recipe;
  check_recipe(judge, recipe);
  if (q8 && k8 && v8) {
    judge.refuse("recipe is " + recipe_name(recipe) +
                 "; must be left out, since q, k and v are quantised already");
  }
  judge.require(!recipe.rotate || (!q8 && !k8), [&] {
    return Refusal{"recipe", recipe_name(recipe),
                   "not rotate where q or k is quantised already: both turn, or neither"};
  });
  judge.require(!recipe.smooth_k || !k8, [&] {
    return Refusal{"recipe", recipe_name(recipe), "not smooth k where k is quantised already"};
  });
  return recipe;
}

/// Tensor cores multiply INT8 with INT8, FP8 with FP8.
void check_formats(const Judge& judge, const AttentionProblem& problem) {
  const DType q = problem.q_format(), k = problem.k_format();
  if ((q == DType::i8) == (k == DType::i8)) return;
  if (problem.q.quantised() == problem.k.quantised()) {
    judge.refuse("k.dtype is " + std::string(dtype_name(k)) + "; must be " +
                 (q == DType::i8 ? "i8" : "FP8") + ", since q is " + dtype_name(q));
  }
  const bool int8 = (problem.q.quantised() ? q : k) == DType::i8;
  judge.refuse("recipe is " + recipe_name(problem.recipe) + "; must " +
               (int8 ? "have Q and K in INT8 (+int8), since " : "have Q and K in FP8, since ") +
               (problem.q.quantised() ? "q is " : "k is ") +
               dtype_name(problem.q.quantised() ? q : k));
}

/// Where nothing is quantised, nothing may be said about how.
void check_precision(const Judge& judge, const AttentionParams& params) {
  if (params.precision == Precision::fp8 || params.precision == Precision::automatic) return;
  const std::string where = std::string("where precision is ") + precision_name(params.precision);
  const DType type = params.precision == Precision::bf16 ? DType::bf16 : DType::f16;
  for (const auto& [name, x] : {std::pair{"q", &params.q}, {"k", &params.k}, {"v", &params.v}}) {
    judge.require(x->dtype == type, [&] {
      return Refusal{std::string(name) + ".dtype", dtype_name(x->dtype),
                     std::string("be ") + dtype_name(type) + " " + where};
    });
  }
  if (params.recipe) {
    judge.refuse("recipe is " + recipe_name(*params.recipe) + "; must be left out " + where);
  }
  if (params.rope) judge.refuse("rope is given; must be left out " + where);
  judge.require(params.softmax == SoftmaxPath::exact, [&] {
    return Refusal{"softmax", softmax_name(params.softmax), "be exact " + where};
  });
  judge.require(params.promote_every == 1, [&] {
    return Refusal{"promote_every", text(std::int64_t{params.promote_every}), "be 1 " + where};
  });
}

void check_rope(const Judge& judge, const std::optional<Rope>& rope,
                const AttentionProblem& problem) {
  if (!rope) return;
  const Dims& n = problem.dims;
  if (problem.q.quantised() || problem.k.quantised()) {
    judge.refuse("rope is given; must be left out, since q or k is quantised already");
  }
  for (const auto& [name, table] : {std::pair{"rope.cos", &rope->cos}, {"rope.sin", &rope->sin}}) {
    check_view(judge, name, *table, 2);
    check_device(judge, name, *table, problem.q.x.device);
    judge.require(!is_quantised(table->dtype), [&] {
      return Refusal{std::string(name) + ".dtype", dtype_name(table->dtype), "be f32, f16 or bf16"};
    });
    judge.require(table->stride[1] == 1, [&] {
      return Refusal{std::string(name) + ".stride[1]", text(table->stride[1]),
                     "be 1 (a contiguous last dimension)"};
    });
  }
  judge.require(rope->cos.shape[1] >= 1 && 2 * rope->cos.shape[1] <= n.d, [&] {
    return Refusal{"rope.cos.shape[1]", text(rope->cos.shape[1]),
                   "be from 1 to half the head dim (" + text(n.d / 2) + ")"};
  });
  judge.same_extent("rope.sin", rope->sin, 1, "rope.cos.shape[1]", rope->cos.shape[1]);
  judge.same_extent("rope.sin", rope->sin, 0, "rope.cos.shape[0]", rope->cos.shape[0]);
  judge.require(rope->sin.dtype == rope->cos.dtype, [&] {
    return Refusal{"rope.sin.dtype", dtype_name(rope->sin.dtype),
                   std::string("equal rope.cos.dtype (") + dtype_name(rope->cos.dtype) + ")"};
  });
  judge.require(rope->q_offset >= 0 && rope->q_offset <= rope->cos.shape[0] - n.sq, [&] {
    return Refusal{"rope.q_offset", text(rope->q_offset),
                   "leave q.shape[1] (" + text(n.sq) + ") of the " + text(rope->cos.shape[0]) +
                       " positions of rope.cos"};
  });
  judge.require(rope->k_offset >= 0 && rope->k_offset <= rope->cos.shape[0] - n.sk, [&] {
    return Refusal{"rope.k_offset", text(rope->k_offset),
                   "leave k.shape[1] (" + text(n.sk) + ") of the " + text(rope->cos.shape[0]) +
                       " positions of rope.cos"};
  });
}

void check_row_statistics(const Judge& judge, const char* name, const TensorView& x,
                          const Dims& dims, Device device) {
  if (!x.present()) return;
  check_view(judge, name, x, 3);
  check_device(judge, name, x, device);
  judge.require(x.dtype == DType::f32, [&] {
    return Refusal{std::string(name) + ".dtype", dtype_name(x.dtype), "be f32"};
  });
  judge.same_extent(name, x, 0, "q.shape[0]", dims.b);
  judge.same_extent(name, x, 1, "q.shape[2]", dims.hq);
  judge.same_extent(name, x, 2, "q.shape[1]", dims.sq);
}

void check_outputs(const Judge& judge, const AttentionParams& params, const Dims& dims) {
  check_operand_view(judge, "out", params.out);
  check_device(judge, "out", params.out, params.q.device);
  judge.same_extent("out", params.out, 0, "q.shape[0]", dims.b);
  judge.same_extent("out", params.out, 1, "q.shape[1]", dims.sq);
  judge.same_extent("out", params.out, 2, "q.shape[2]", dims.hq);
  judge.same_extent("out", params.out, 3, "v.shape[3]", dims.dv);
  judge.require(!is_quantised(params.out.dtype), [&] {
    return Refusal{"out.dtype", dtype_name(params.out.dtype), "be f32, f16 or bf16"};
  });
  check_no_overlap(judge, "out", params.out);
  check_row_statistics(judge, "lse", params.lse, dims, params.q.device);
  if (params.lse.present()) check_no_overlap(judge, "lse", params.lse);
}

void check_scalars(const Judge& judge, const AttentionParams& params) {
  if (params.sm_scale) {
    judge.require(std::isfinite(*params.sm_scale) && *params.sm_scale > 0, [&] {
      return Refusal{"sm_scale", text(*params.sm_scale), "be positive and finite"};
    });
  }
  judge.require(std::isfinite(params.softcap) && params.softcap >= 0, [&] {
    return Refusal{"softcap", text(double{params.softcap}), "be 0 (off) or positive and finite"};
  });
  judge.require(params.mask.left >= -1, [&] {
    return Refusal{"mask.left", text(params.mask.left), "be -1 (unlimited) or a number of keys"};
  });
  judge.require(params.mask.right >= -1, [&] {
    return Refusal{"mask.right", text(params.mask.right), "be -1 (unlimited) or a number of keys"};
  });
  judge.require(params.promote_every >= 0, [&] {
    return Refusal{"promote_every", text(std::int64_t{params.promote_every}),
                   "be a number of key tiles, or 0 for never"};
  });
  judge.require(params.num_splits >= 1 && params.num_splits <= kMaxSplits, [&] {
    return Refusal{"num_splits", text(std::int64_t{params.num_splits}),
                   "be 1 to " + text(std::int64_t{kMaxSplits})};
  });
  judge.require(params.threads >= 0, [&] {
    return Refusal{"threads", text(std::int64_t{params.threads}),
                   "be 0 (one per core) or positive"};
  });
}

}  // namespace

AttentionProblem validate(const AttentionParams& params) {
  const Judge judge("attention_forward");
  AttentionProblem problem;
  problem.dims = check_shapes(judge, params.q, params.k, params.v);
  check_operands(judge, params, problem);
  check_outputs(judge, params, problem.dims);
  check_scalars(judge, params);
  check_precision(judge, params);
  problem.precision = params.precision == Precision::automatic
                          ? choose_precision(params, problem.dims)
                          : params.precision;
  problem.key_lengths = check_key_lengths(judge, params.key_lengths, problem.dims);
  problem.recipe = resolve_recipe(judge, params, problem);
  check_formats(judge, problem);
  check_rope(judge, params.rope, problem);
  problem.rope = params.rope;
  check_row_statistics(judge, "score_shift", params.score_shift, problem.dims, params.q.device);
  if (params.score_shift.present() && !(problem.q.quantised() && problem.k.quantised())) {
    judge.refuse("score_shift is given; must be left out unless q and k are quantised already");
  }
  problem.out = params.out;
  problem.lse = params.lse;
  problem.score_shift = params.score_shift;
  problem.sm_scale =
      params.sm_scale ? *params.sm_scale : 1.0 / std::sqrt(static_cast<double>(problem.dims.d));
  problem.softcap = params.softcap;
  problem.mask = params.mask;
  const bool fp8 = problem.precision == Precision::fp8;
  problem.softmax = fp8 ? params.softmax : SoftmaxPath::exact;
  problem.accumulator = params.accumulator;
  problem.promote_every = fp8 ? params.promote_every : 1;
  problem.num_splits = params.num_splits;
  problem.threads = resolve_threads(params.threads);
  problem.progress = params.progress;
  return problem;
}

AttentionProblem validate(const QuantizeParams& params) {
  const Judge judge("quantize");
  AttentionProblem problem;
  problem.dims = check_shapes(judge, params.q, params.k, params.v);
  problem.q.x = params.q;
  problem.k.x = params.k;
  problem.v.x = params.v;
  const char* names[] = {"q", "k", "v"};
  const TensorView* views[] = {&params.q, &params.k, &params.v};
  for (int i = 0; i < 3; ++i) {
    judge.require(!is_quantised(views[i]->dtype), [&] {
      return Refusal{std::string(names[i]) + ".dtype", dtype_name(views[i]->dtype),
                     "be f32, f16 or bf16"};
    });
  }
  judge.require(params.threads >= 0, [&] {
    return Refusal{"threads", text(std::int64_t{params.threads}),
                   "be 0 (one per core) or positive"};
  });
  check_recipe(judge, params.recipe);
  problem.key_lengths = check_key_lengths(judge, params.key_lengths, problem.dims);
  problem.recipe = params.recipe;
  check_rope(judge, params.rope, problem);
  problem.rope = params.rope;
  problem.threads = resolve_threads(params.threads);
  return problem;
}

std::string why_not_in_fp8(const AttentionProblem& problem) {
  const bool v_per_token = problem.v.quantised()
                               ? problem.v.descale.granularity == Granularity::token
                               : problem.recipe.v == Granularity::token;
  if (problem.softmax == SoftmaxPath::direct && v_per_token) {
    return "softmax is direct; must be exact where v has a descale per token (recipe "
           "strict_causal), which only an exact P can take in";
  }
  return "";
}

void require_host_memory(const AttentionProblem& problem) {
  Judge("quantize").require(problem.q.x.device.kind == Device::Kind::cpu, [&] {
    return Refusal{"device of q", "cuda", "be cpu (host memory)"};
  });
}

}  // namespace octavo
