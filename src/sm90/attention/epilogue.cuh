// SPDX-License-Identifier: Apache-2.0
// Stage `epilogue`: O / l in the output type, LSE = (m + log2 l - 8) ln 2 + sm_scale * shift.
//
// A quad of threads holds two neighbouring columns each of every 8. For 16-bit outputs it
// transposes 4 x 4 words among itself, so that each thread stores 8 columns, 16 bytes, at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "sm90/attention/args.h"
#include "sm90/attention/pv.cuh"
#include "sm90/attention/scores.cuh"

namespace octavo::sm90 {

__device__ inline std::uint32_t pack_16(float low, float high, DType dtype) {
  if (dtype == DType::bf16) {
    const __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&x);
  }
  const __half2 x = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&x);
}

/// w[j] of lane c of a quad becomes w[c] of lane j.
__device__ inline void transpose_quad(std::uint32_t (&w)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, lane & 1 ? w[j] : w[j + 1], 1);
    (lane & 1 ? w[j] : w[j + 1]) = got;
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, lane & 2 ? w[j] : w[j + 2], 2);
    (lane & 2 ? w[j] : w[j + 2]) = got;
  }
}

/// Two neighbouring elements of a row, wherever it starts.
__device__ inline void store_pair(std::byte* row, DType dtype, int column, float low, float high) {
  if (dtype == DType::f32) {
    auto* to = reinterpret_cast<float*>(row) + column;
    to[0] = low;
    to[1] = high;
    return;
  }
  const std::uint32_t packed = pack_16(low, high, dtype);
  auto* to = reinterpret_cast<std::uint16_t*>(row) + column;
  to[0] = static_cast<std::uint16_t>(packed);
  to[1] = static_cast<std::uint16_t>(packed >> 16);
}

/// Row `kHalf`, 32 columns from `kFirst` on; `row` is null for a row that does not exist.
template <int kHalf, int kFirst, int kCount>
__device__ inline void store_32(const float (&o)[kCount], std::byte* row,
                                const AttentionArgs& args) {
  constexpr int kRegister = kFirst / 2 + 2 * kHalf;
  const int lane = static_cast<int>(threadIdx.x) % 4;
  if (args.wide_stores && args.out_dtype != DType::f32) {
    std::uint32_t w[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      w[j] = pack_16(o[kRegister + 4 * j], o[kRegister + 4 * j + 1], args.out_dtype);
    }
    transpose_quad(w);
    const int column = kFirst + 8 * lane;
    if (row != nullptr && column < args.dv) {
      *reinterpret_cast<uint4*>(row + 2 * column) = {w[0], w[1], w[2], w[3]};
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int column = kFirst + 8 * j + 2 * lane;
    if (row == nullptr || column >= args.dv) continue;
    const float low = o[kRegister + 4 * j], high = o[kRegister + 4 * j + 1];
    if (args.wide_stores) {
      *reinterpret_cast<float2*>(row + 4 * column) = {low, high};
    } else {
      store_pair(row, args.out_dtype, column, low, high);
    }
  }
}

template <typename Traits, int kHalf, int kFirst = 0>
__device__ inline void store_row(const Output<Traits>& out, std::byte* row,
                                 const AttentionArgs& args) {
  store_32<kHalf, kFirst>(out.o, row, args);
  if constexpr (kFirst + 32 < Traits::kHeadDimV) {
    store_row<Traits, kHalf, kFirst + 32>(out, row, args);
  }
}

template <typename Traits, int kHalf>
__device__ inline void finish_row(Output<Traits>& out, const SoftmaxState& state,
                                  const ItemNote& item, int m, const RowNote* rows,
                                  const AttentionArgs& args) {
  const float l = out.l[kHalf];
  const float inverse = l == 0 ? 0.0f : 1.0f / l;
#pragma unroll
  for (int r = 0; r < Traits::kHeadDimV / 2; ++r) {
    if (fragment_half(r) != kHalf) continue;
    out.o[r] = l == 0 ? 0.0f : out.o[r] * inverse * out.unit[kHalf];
  }
  const int row = m + own_row() + 8 * kHalf;
  std::byte* to = nullptr;
  if (row < args.sq) {
    const std::int64_t offset =
        item.batch * args.out_stride_b + row * args.out_stride_s + item.head * args.out_stride_h;
    to = static_cast<std::byte*>(args.out) +
         offset * static_cast<std::int64_t>(size_of(args.out_dtype));
  }
  store_row<Traits, kHalf>(out, to, args);
  if (to == nullptr || args.lse.data == nullptr || threadIdx.x % 4 != 0) return;
  // Inside a softcap the shift has been put back already.
  const float shift = args.softcap_scale > 0 ? 0.0f : args.sm_scale * rows[own_row() + 8 * kHalf].shift;
  const float log2_sum = state.m[kHalf] + (log2f(l) - kPExponentShift);
  *args.lse.at(item.batch, item.head, row) =
      l == 0 ? -INFINITY : __fmaf_rn(log2_sum, static_cast<float>(kLn2), shift);
}

template <typename Traits>
__device__ inline void epilogue(Output<Traits>& out, const SoftmaxState& state,
                                const ItemNote& item, int warpgroup, const RowNote* rows,
                                const AttentionArgs& args) {
  const int m = item.m + warpgroup * kWarpgroupRows;
  finish_row<Traits, 0>(out, state, item, m, rows, args);
  finish_row<Traits, 1>(out, state, item, m, rows, args);
}

}  // namespace octavo::sm90
