// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/tensor.h"

namespace octavo {

/// How many elements share one descale.
enum class Granularity : std::uint8_t {
  tensor,  ///< the whole tensor
  head,    ///< one (batch, head)
  block,   ///< 64 rows of Q, or 128 rows of K or V, of one (batch, head)
  token,   ///< one row
};

const char* granularity_name(Granularity granularity) noexcept;

/// How operands in 16 or 32 bits become codes of 8 bits. Named recipes below; any field may be
/// changed.
struct Recipe {
  Granularity q = Granularity::block;
  Granularity k = Granularity::block;
  Granularity v = Granularity::block;
  bool rotate = false;            ///< random-sign Hadamard of Q and K along the head dim
  bool smooth_k = false;          ///< subtract K's mean (of up to 128 keys), per (batch, kv head)
  std::uint64_t seed = 0x0c7a40;  ///< of the random signs
  DType qk_format = DType::f8_e4m3;  ///< of Q and K; i8 rounds rotated values four times finer
  DType kv_format = DType::f8_e4m3;  ///< f8_e5m2, of K and V, is for caches shared with others; not
                                     ///< with i8

  DType k_format() const { return qk_format == DType::i8 ? DType::i8 : kv_format; }

  static Recipe per_tensor();  ///< the textbook baseline: one scale a tensor
  static Recipe per_head();    ///< one scale a (batch, head)
  static Recipe block();       ///< block scales only
  static Recipe fp8();         ///< block scales for K and V, token scales for Q, rotation, K
                               ///< smoothing; all of it in E4M3
  static Recipe standard();    ///< "default": the same with Q and K in INT8, where NaN or infinity
                               ///< in K reaches all rows that share its key tile
  static Recipe strict_causal();  ///< per-token scales + rotation: nothing a later token can change

  friend bool operator==(const Recipe&, const Recipe&) = default;
};

/// "default", "fp8", "per_tensor", "per_head", "block", "strict_causal", each optionally followed
/// by "+rotate", "+smooth", and "+int8" (Q and K) or "+e5m2" (K and V; Q in E4M3). Throws
/// Error{invalid_argument} with the list of names.
Recipe parse_recipe(const std::string& name);

/// The shortest name that parse_recipe reads back, or a spelled-out list of the fields.
std::string recipe_name(const Recipe& recipe);

/// The names of the recipes above, in the order in which tables show them.
std::vector<std::string> recipe_names();

/// Which channels a rotary position embedding turns together.
enum class RopeStyle : std::uint8_t {
  interleaved,  ///< channels 2 i and 2 i + 1 (RoFormer, GPT-J)
  half_split,   ///< channels i and i + rotary_dim / 2 (Llama in Hugging Face's layout, GPT-NeoX)
};

/// Rotary position embedding of Q and K, applied before anything else (Su et al. 2021, RoFormer):
///   x1 <- x1 cos - x2 sin,  x2 <- x2 cos + x1 sin
/// on the first rotary_dim channels of each row; the others stay.
struct Rope {
  /// [positions, rotary_dim / 2], f32, f16 or bf16, last stride 1, on the operands' device.
  TensorView cos, sin;
  RopeStyle style = RopeStyle::half_split;
  std::int64_t q_offset = 0;  ///< position of the first row of Q
  std::int64_t k_offset = 0;  ///< position of the first row of K
};

/// One quantised operand in host memory, row-major, owning its storage.
struct QuantizedTensor {
  DType dtype = DType::f8_e4m3;
  std::array<std::int64_t, 4> shape{};  ///< [b, s, h, d]; rotated operands have the padded d
  std::vector<std::uint8_t> codes;      ///< contiguous [b, s, h, d]
  Granularity granularity = Granularity::block;
  std::vector<std::int64_t> descale_shape;  ///< {1}, {b, h}, {b, h, blocks} or {b, h, s}
  std::vector<float> descale;

  TensorView view();
  TensorView descale_view();
};

/// Quantised Q, K and V of one attention call.
struct QuantizedQkv {
  QuantizedTensor q, k, v;
  std::vector<float> score_shift;  ///< [b, hq, sq]: q . mean(K), what smoothing took from each row
                                   ///< of scores (before sm_scale); empty without smoothing
  std::int64_t head_dim = 0;  ///< d of the inputs: sm_scale defaults to 1 / sqrt of this, not of
                              ///< the padded d that rotated codes have
};

/// What the quantiser takes: 16- or 32-bit operands [b, s, h, d] in host memory, last stride 1.
struct QuantizeParams {
  TensorView q, k, v;
  Recipe recipe = Recipe::standard();
  std::optional<Rope> rope;               ///< of Q and K, before all else
  std::vector<std::int64_t> key_lengths;  ///< valid keys of each batch entry; empty: all
  std::string engine = "auto";  ///< "emulate" or "sm90"; auto: emulate for host tensors, whose
                                ///< bits are the same
  int threads = 0;              ///< emulate; 0: one per core
};

/// Rotates, smooths, scales and casts Q, K and V: the stages rope, rotate, smooth, amax, scale and
/// cast of docs/data_path.md. Keys past a batch entry's length become code 0. For tensors in device
/// memory see octavo/cuda.h. Throws Error{invalid_argument}, Error{unsupported}.
QuantizedQkv quantize(const QuantizeParams& params);

/// Counts over codes: how often a finite input hit the largest magnitude although it lay beyond it,
/// and how often a non-zero input became zero.
struct CastCounts {
  std::int64_t saturated = 0;
  std::int64_t flushed = 0;
  std::int64_t total = 0;
};

}  // namespace octavo
