// SPDX-License-Identifier: Apache-2.0
// Attention calls of tests: extents, operands that own their memory, and runs into poisoned
// outputs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "octavo/attention.h"
#include "octavo/quantize.h"
#include "support/random.h"
#include "support/tensor.h"

namespace octavo::test {

inline constexpr int kThreads = 2;

struct Extents {
  std::int64_t b = 1, sq = 128, sk = 128;
  std::int64_t hq = 1, hkv = 1;
  std::int64_t d = 128, dv = 128;

  std::vector<std::int64_t> q_shape() const { return {b, sq, hq, d}; }
  std::vector<std::int64_t> k_shape() const { return {b, sk, hkv, d}; }
  std::vector<std::int64_t> v_shape() const { return {b, sk, hkv, dv}; }
};

/// Operands of one call. Move-only in spirit: params() points into it.
struct Inputs {
  Tensor q, k, v;
  Tensor q_descale, k_descale, v_descale, score_shift;  ///< FP8 operands only

  AttentionParams params() {
    AttentionParams p;
    p.q = q.view();
    p.k = k.view();
    p.v = v.view();
    if (q_descale.numel() > 0) p.q_descale = q_descale.view();
    if (k_descale.numel() > 0) p.k_descale = k_descale.view();
    if (v_descale.numel() > 0) p.v_descale = v_descale.view();
    if (score_shift.numel() > 0) p.score_shift = score_shift.view();
    p.threads = kThreads;
    return p;
  }
  AttentionParams params(const Recipe& recipe) {
    AttentionParams p = params();
    p.recipe = recipe;
    return p;
  }
};

inline Inputs normal_inputs(const Extents& n, std::uint64_t seed, DType dtype = DType::bf16) {
  return {normal_tensor(dtype, n.q_shape(), 3 * seed),
          normal_tensor(dtype, n.k_shape(), 3 * seed + 1),
          normal_tensor(dtype, n.v_shape(), 3 * seed + 2),
          {},
          {},
          {},
          {}};
}

struct Result {
  Tensor out, lse;
  AttentionStats stats;
};

/// Runs a call on one engine into outputs that hold NaN before.
inline Result run(AttentionParams params, const std::string& engine, DType out = DType::f32) {
  const auto& q = params.q.shape;
  Result result{Tensor(out, {q[0], q[1], q[2], params.v.shape[3]}),
                Tensor(DType::f32, {q[0], q[2], q[1]}),
                {}};
  result.out.poison();
  result.lse.poison();
  params.out = result.out.view();
  params.lse = result.lse.view();
  params.engine = engine;
  result.stats = attention_forward(params);
  return result;
}

inline Result emulate(const AttentionParams& params, DType out = DType::f32) {
  return run(params, "emulate", out);
}

inline Result reference(const AttentionParams& params, DType out = DType::f32) {
  return run(params, "reference", out);
}

/// The call on operands quantised beforehand: codes, descales and shifts as the quantiser gives
/// them.
inline Inputs quantised(const AttentionParams& params, const Recipe& recipe) {
  QuantizeParams what;
  what.q = params.q;
  what.k = params.k;
  what.v = params.v;
  what.recipe = recipe;
  what.key_lengths = params.key_lengths;
  what.threads = params.threads;
  QuantizedQkv x = quantize(what);
  const auto codes = [](const QuantizedTensor& from) {
    Tensor to(from.dtype, {from.shape.begin(), from.shape.end()});
    std::transform(from.codes.begin(), from.codes.end(), to.bytes().begin(),
                   [](std::uint8_t code) { return static_cast<std::byte>(code); });
    return to;
  };
  const auto floats = [](const std::vector<float>& from, std::vector<std::int64_t> shape) {
    return from.empty() ? Tensor() : Tensor(DType::f32, std::move(shape), from);
  };
  const auto& q = params.q.shape;
  return {codes(x.q),
          codes(x.k),
          codes(x.v),
          floats(x.q.descale, x.q.descale_shape),
          floats(x.k.descale, x.k.descale_shape),
          floats(x.v.descale, x.v.descale_shape),
          floats(x.score_shift, {q[0], q[2], q[1]})};
}

}  // namespace octavo::test
