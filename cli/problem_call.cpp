// SPDX-License-Identifier: Apache-2.0
#include "problem_call.h"

namespace octavo::cli {
namespace {

// Engines judge shapes, strides and types, never contents: any address will do.
alignas(16) float placeholder = 1;

TensorView operand(DType dtype, workload::Layout layout, std::int64_t b, std::int64_t s,
                   std::int64_t h, std::int64_t d) {
  if (layout == workload::Layout::bhsd) {
    return transposed(contiguous(&placeholder, dtype, {b, h, s, d}), 1, 2);
  }
  return contiguous(&placeholder, dtype, {b, s, h, d});
}

}  // namespace

AttentionParams hollow_call(const workload::Problem& p) {
  AttentionParams params;
  params.q = operand(p.in, p.layout, p.b, p.sq, p.hq, p.d);
  params.k = operand(p.in, p.layout, p.b, p.sk, p.hkv, p.d);
  params.v = operand(p.in, p.layout, p.b, p.sk, p.hkv, p.dv);
  if (p.layout == workload::Layout::packed) {
    const std::int64_t row = (p.hq + 2 * p.hkv) * p.d;
    for (TensorView* x : {&params.q, &params.k, &params.v}) {
      x->stride[1] = row;
      x->stride[0] = row * p.sq;
    }
  }
  params.out = operand(p.out, p.layout, p.b, p.sq, p.hq, p.dv);
  if (is_fp8(p.in)) {
    params.q.dtype = p.recipe.qk_format;
    params.k.dtype = p.recipe.k_format();
    params.v.dtype = p.recipe.kv_format;
    params.q_descale = params.k_descale = params.v_descale =
        contiguous(&placeholder, DType::f32, {1});
  }
  params.precision = p.precision;
  params.recipe = workload::recipe_of_call(p);
  params.mask = p.mask;
  params.softcap = p.softcap;
  params.key_lengths = p.lens;
  if (p.scale) params.sm_scale = *p.scale;
  params.softmax = p.softmax;
  params.accumulator = p.acc;
  params.promote_every = p.promote;
  params.num_splits = p.splits;
  return params;
}

}  // namespace octavo::cli
