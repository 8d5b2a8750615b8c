// SPDX-License-Identifier: Apache-2.0
// Stage `scale`: scale and descale from amax (core/quant_block.h, core/hadamard.h), with correctly
// rounded divisions, and where descales are stored.
#pragma once

#include "sm90/ptx/math.cuh"
#include "sm90/ptx/opaque.cuh"
#include "sm90/quantize/row_tile.cuh"

namespace octavo::sm90 {

/// a / top, correctly rounded: so are a product with 1 / top and one correction, for each of the
/// constants, as long as nothing is subnormal (checked for every significand; core/quant_block.h
/// bounds a).
__device__ inline float divide_by_top(float a, float top, float reciprocal) {
  const float quotient = __fmul_rn(a, reciprocal);
  return fmaf(fmaf(-top, quotient, a), reciprocal, quotient);
}

/// top / a, correctly rounded: a reciprocal, refined once, and a corrected quotient, what __fdiv_rn
/// does where no exponent is extreme; so large a are scaled by a power of two.
__device__ inline float divide_top(float top, float a) {
  const float down = a > 0x1p64f ? 0x1p-64f : 1.0f, x = __fmul_rn(a, down);
  const float first = ptx::rcp_approx(x);
  const float reciprocal = fmaf(first, fmaf(-x, first, 1.0f), first);
  const float quotient = __fmul_rn(top, reciprocal);
  return __fmul_rn(fmaf(reciprocal, fmaf(-x, quotient, top), quotient), down);
}

__device__ inline ScalePair scale_on_device(float amax, const OperandArgs& operand) {
  const float a = ptx::max_nan(__fmul_rn(amax, operand.norm), kMinAmax);
  const float top = max_magnitude(operand.format);
  const float reciprocal = operand.format == DType::i8        ? 1.0f / kInt8Max
                           : operand.format == DType::f8_e5m2 ? 1.0f / kE5m2Max
                                                              : 1.0f / kE4m3Max;
  const float scale = __fmul_rn(divide_top(top, a), operand.norm);
  return {a == a ? scale : 0.0f, divide_by_top(a, top, reciprocal)};
}

/// Descale of row `row` of the tile where each has its own.
__device__ inline float* token_descale(const OperandArgs& operand, const RowBlock& rows, int row) {
  return operand.descale + std::int64_t{rows.head} * operand.padded_rows + rows.first + row;
}

/// Descale of the block of `block_rows` rows that begins at row `row` of the sequence. Blocks count
/// the rows that exist, not the padded ones.
__device__ inline float* block_descale(const OperandArgs& operand, const RowBlock& rows, int row,
                                       int block_rows) {
  const int blocks = (operand.rows + block_rows - 1) / block_rows;
  return operand.descale + std::int64_t{rows.head} * blocks + row / block_rows;
}

/// Scale of a head or the tensor, whose amax is known; one thread of its first tile stores the
/// descale.
__device__ inline float coarse_scale(const OperandArgs& operand, const RowBlock& rows) {
  const bool by_head = operand.granularity == Granularity::head;
  const std::int64_t entry = by_head ? rows.head : 0;
  const ScalePair pair = scale_on_device(operand.amax[entry], operand);
  if (threadIdx.x == 0 && ptx::opaque(rows.first) == 0 && rows.head == entry) {
    operand.descale[entry] = pair.descale;
  }
  return pair.scale;
}

/// Adds to the amax of the tile's head or the tensor.
__device__ inline void add_coarse_amax(const OperandArgs& operand, const RowBlock& rows,
                                       float most) {
  float* out = operand.amax + (operand.granularity == Granularity::head ? rows.head : 0);
  atomicMax(reinterpret_cast<int*>(out), __float_as_int(most));  // orders as floats: most >= 0
}

__device__ inline bool is_coarse(const OperandArgs& operand) {
  return operand.granularity == Granularity::head || operand.granularity == Granularity::tensor;
}

template <int kCount>
__device__ void same_scale(float value, float (&scale)[kCount]) {
#pragma unroll
  for (float& s : scale) s = value;
}

}  // namespace octavo::sm90
