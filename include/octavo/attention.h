// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "octavo/error.h"
#include "octavo/quantize.h"
#include "octavo/tensor.h"

namespace octavo {

/// Which keys a query may see. Queries are aligned with the last keys ("bottom-right"): query i of
/// sq stands at key position i + sk - sq.
struct MaskSpec {
  static constexpr std::int64_t kUnlimited = -1;
  std::int64_t left = kUnlimited;   ///< keys further back than this are hidden
  std::int64_t right = kUnlimited;  ///< keys further ahead than this are hidden

  static MaskSpec none() { return {}; }
  static MaskSpec causal() { return {kUnlimited, 0}; }
  static MaskSpec window(std::int64_t left, std::int64_t right) { return {left, right}; }
  friend bool operator==(const MaskSpec&, const MaskSpec&) = default;
};

/// What both products multiply.
enum class Precision : std::uint8_t {
  fp8,   ///< 8 bits: Q, K and V as the recipe says, P in E4M3
  bf16,  ///< Q, K and V in BF16 as they are, P in BF16
  fp16,  ///< the same in FP16
  /// bf16 or fp16 where q, k and v have that type and quantising them should cost a Hopper GPU more
  /// than it gains: short sequences. Recipe, softmax and promote_every are those of fp8. Depends on
  /// shapes, types, mask, and whether rows are on 16-byte boundaries.
  automatic,
};

/// How P = softmax numerators reach E4M3.
enum class SoftmaxPath : std::uint8_t {
  exact,   ///< FP32 exponential, then a cast
  direct,  ///< E4M3 codes straight from the scores (docs/numerics.md)
};

/// How the emulation adds up matrix products of FP8; those of INT8 and of 16 bits it adds in FP32.
enum class Accumulator : std::uint8_t {
  hopper,  ///< bit-true model of the FP8 tensor cores: 14 significant bits, truncated
  fp32,    ///< FP32 fused multiply-adds, in key or channel order
};

/// One forward call: O = softmax(mask(softcap(sm_scale Q K^T))) V.
///
/// Shapes: q [b, sq, hq, d], k [b, sk, hkv, d], v [b, sk, hkv, dv], out [b, sq, hq, dv], all with a
/// last stride of 1. hq is a multiple of hkv. d and dv are multiples of 8 up to 256.
/// q, k, v: f32, f16, bf16, or FP8 (q and k also i8, both of them) with descales; out: f32, f16 or
/// bf16.
struct AttentionParams {
  TensorView q, k, v;
  TensorView out;
  TensorView lse;  ///< optional f32 [b, hq, sq]: natural log of the sum of exponentials; -inf where
                   ///< a row sees no key

  /// Descales of operands in 8 bits (required for those, refused for others), f32 of shape {1},
  /// {h}, {b, h}, {b, h, blocks} or {b, h, s}; h is the operand's own head count, or hkv for q too.
  TensorView q_descale, k_descale, v_descale;
  /// Optional f32 [b, hq, sq], with q and k in 8 bits only: what K smoothing took from each row of
  /// Q K^T (QuantizedQkv::score_shift).
  TensorView score_shift;

  std::optional<Rope> rope;        ///< of Q and K in 16 or 32 bits, before all else
  std::optional<double> sm_scale;  ///< default 1 / sqrt(d); must be positive and finite
  MaskSpec mask;
  float softcap = 0;  ///< 0: off; else scores become softcap tanh(score/softcap)
  std::vector<std::int64_t> key_lengths;  ///< valid keys of each batch entry; empty: all sk

  /// bf16 and fp16: q, k and v have that type already, and nothing is quantised: no recipe, no
  /// descales, no rope; softmax exact, promote_every 1.
  Precision precision = Precision::fp8;
  /// Of the 16- or 32-bit operands, where precision is fp8. Default: Recipe::standard() where all
  /// three are, else block(), with qk_format i8 where one of q and k is.
  std::optional<Recipe> recipe;
  SoftmaxPath softmax = SoftmaxPath::exact;
  Accumulator accumulator = Accumulator::hopper;
  int promote_every = 1;  ///< key tiles between promotions of P V to FP32; 0: never
  /// 1 to 64: each row's keys are cut into that many ranges of whole key tiles (128 keys; of n keys
  /// each range has ceil(ceil(n / 128) / num_splits) tiles, the last ones fewer or none), each is
  /// attended by itself, and the results O_i, in FP32, are merged by their LSE_i: with
  /// M = max LSE_i and w_i = exp(LSE_i - M), O = sum w_i O_i / sum w_i and LSE = M + log(sum w_i).
  /// More parallelism where rows and heads are few. The same function; FP8 rounding differs a
  /// little, since each range has its own running maximum. The reference ignores it.
  int num_splits = 1;

  std::string engine = "auto";           ///< "auto" (never the reference), or of engine_names()
  int threads = 0;                       ///< CPU engines; 0: one per core
  std::function<void(double)> progress;  ///< called with the share done, 0 to 1, by any thread
};

/// What ran, and how the FP8 casts went.
struct AttentionStats {
  std::string engine;                    ///< the engine that ran
  Precision precision = Precision::fp8;  ///< in what it computed
  CastCounts q, k, v, p;                 ///< filled by the emulation only, where precision is fp8
};

/// Computes params.out (and params.lse). Throws Error; on an error nothing has been written.
AttentionStats attention_forward(const AttentionParams& params);

const char* precision_name(Precision precision) noexcept;
const char* softmax_name(SoftmaxPath path) noexcept;
const char* accumulator_name(Accumulator accumulator) noexcept;
Precision parse_precision(const std::string& name);
SoftmaxPath parse_softmax(const std::string& name);
Accumulator parse_accumulator(const std::string& name);

}  // namespace octavo
