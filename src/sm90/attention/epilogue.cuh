// SPDX-License-Identifier: Apache-2.0
// Stage `epilogue`: O / l in the output type, LSE = (m + log2 l - 8) ln 2 + sm_scale * shift.
//
// A quad of threads holds two neighbouring columns each of every 8. For 16-bit outputs its even and
// odd threads swap words, so that the quad stores 16 columns, a sector of 32 bytes, at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "sm90/attention/args.h"
#include "sm90/attention/pv.cuh"
#include "sm90/attention/scores.cuh"
#include "sm90/attention/store.cuh"
#include "sm90/ptx/named_barrier.cuh"
#include "sm90/ptx/stmatrix.cuh"
#include "sm90/ptx/tma.cuh"

namespace octavo::sm90 {

/// Where a thread's row goes; no columns: nowhere.
struct OutputRow {
  std::byte* data = nullptr;
  int columns = 0;
};

__device__ inline std::uint32_t pack(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&x);
}
__device__ inline std::uint32_t pack(float low, float high, __half) {
  const __half2 x = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&x);
}

/// Row kHalf, times `factor`, in 16 bits; rows on 16-byte boundaries.
template <typename Type, int kHalf, int kCount>
__device__ inline void store_wide(const float (&o)[kCount], float factor, const OutputRow& row) {
  const bool odd = threadIdx.x % 2 != 0;
  const int first = static_cast<int>(threadIdx.x) % 4 / 2 * 4 + (odd ? 8 : 0);
  std::byte* to = row.data + 2 * first;
  const int columns = row.columns - first;
#pragma unroll
  for (int r = 2 * kHalf; r < kCount; r += 8) {  // 16 columns
    const std::uint32_t low = pack(o[r] * factor, o[r + 1] * factor, Type{});
    const std::uint32_t high = pack(o[r + 4] * factor, o[r + 5] * factor, Type{});
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? low : high, 1);
    const int column = (r - 2 * kHalf) * 2;
    if (column < columns) {
      *reinterpret_cast<uint2*>(to + 2 * column) = odd ? uint2{got, high} : uint2{low, got};
    }
  }
}

/// The same in FP32.
template <int kHalf, int kCount>
__device__ inline void store_wide_fp32(const float (&o)[kCount], float factor,
                                       const OutputRow& row) {
  const int first = fragment_first_column(static_cast<int>(threadIdx.x));
  std::byte* to = row.data + 4 * first;
  const int columns = row.columns - first;
#pragma unroll
  for (int r = 2 * kHalf; r < kCount; r += 4) {
    const int column = (r - 2 * kHalf) * 2;
    if (column < columns) {
      *reinterpret_cast<float2*>(to + 4 * column) = {o[r] * factor, o[r + 1] * factor};
    }
  }
}

/// Any type, wherever rows start.
template <int kHalf, int kCount>
__device__ inline void store_anywhere(const float (&o)[kCount], float factor, const OutputRow& row,
                                      DType dtype) {
  const int first = fragment_first_column(static_cast<int>(threadIdx.x));
#pragma unroll
  for (int r = 2 * kHalf; r < kCount; r += 4) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = first + (r - 2 * kHalf) * 2 + i;
      if (column >= row.columns) continue;
      store_element(row.data, dtype, column, o[r + i] * factor);
    }
  }
}

template <int kHalf, int kCount>
__device__ inline void store_row(const float (&o)[kCount], float factor, const OutputRow& row,
                                 const AttentionArgs& args) {
  if (!args.wide_stores) {
    store_anywhere<kHalf>(o, factor, row, args.out.dtype);
  } else if (args.out.dtype == DType::bf16) {
    store_wide<__nv_bfloat16, kHalf>(o, factor, row);
  } else if (args.out.dtype == DType::f16) {
    store_wide<__half, kHalf>(o, factor, row);
  } else {
    store_wide_fp32<kHalf>(o, factor, row);
  }
}

/// What a row is multiplied with: its unit / l. Rows that have seen no key become 0 here, whatever
/// 0 times V has made of them; where the factor would leave FP32's normal range, 1 / l comes first.
template <int kHalf, int kCount>
__device__ inline float output_factor(float (&o)[kCount], float l, float unit) {
  const float inverse = l == 0 ? 0.0f : 1.0f / l;
  const float factor = inverse * unit;
  if (!__any_sync(0xffffffffu, factor < 0x1p-100f)) return factor;
#pragma unroll
  for (int r = 0; r < kCount; ++r) {
    if (fragment_half(r) == kHalf) o[r] = l == 0 ? 0.0f : o[r] * inverse;
  }
  return unit;
}

template <typename Traits, int kHalf>
__device__ inline void store_lse(const Output<Traits>& out, const SoftmaxState& state,
                                 const ItemNote& item, int m, const RowNote* rows,
                                 const AttentionArgs& args) {
  const int row = m + own_row() + 8 * kHalf;
  if (row >= args.sq || args.lse.data == nullptr || threadIdx.x % 4 != 0) return;
  const float l = out.l[kHalf];
  // Inside a softcap the shift has been put back already.
  const float shift =
      args.softcap_scale > 0 ? 0.0f : args.sm_scale * rows[own_row() + 8 * kHalf].shift;
  const float log2_sum = state.m[kHalf] + (log2f(l) - kPExponentShift);
  *args.lse.at(item.batch, item.head, row, item.split) =
      l == 0 ? -INFINITY : __fmaf_rn(log2_sum, static_cast<float>(kLn2), shift);
}

template <typename Traits, int kHalf>
__device__ inline void finish_row(Output<Traits>& out, const SoftmaxState& state,
                                  const ItemNote& item, int m, const RowNote* rows,
                                  const AttentionArgs& args) {
  const float factor = output_factor<kHalf>(out.o, out.l[kHalf], out.unit[kHalf].now);
  const int row = m + own_row() + 8 * kHalf;
  OutputRow to;
  if (row < args.sq) {
    const std::int64_t offset = args.out.offset(item.batch, item.head, row, item.split);
    to = {static_cast<std::byte*>(args.out.data) +
              offset * static_cast<std::int64_t>(size_of(args.out.dtype)),
          args.dv};
  }
  store_row<kHalf>(out.o, factor, to, args);
  store_lse<Traits, kHalf>(out, state, item, m, rows, args);
}

/// Barrier of the first warpgroup; Turns have those before.
inline constexpr int kTileBarrier = 3;

/// A warp's 16 rows in 16 bits to `tile`, pieces of 64 columns of the warpgroup's rows, swizzled.
template <typename Type, int kCount>
__device__ inline void stage_rows(const float (&o)[kCount], const float (&factor)[2],
                                  std::uint8_t* tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = lane % 16, unit = lane / 16;  // this lane's row, and which of two 8 columns
  std::uint8_t* rows = tile + static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32 * 16 * 128;
#pragma unroll
  for (int r = 0; r < kCount; r += 8) {  // 16 columns
    const std::uint32_t words[4] = {pack(o[r] * factor[0], o[r + 1] * factor[0], Type{}),
                                    pack(o[r + 2] * factor[1], o[r + 3] * factor[1], Type{}),
                                    pack(o[r + 4] * factor[0], o[r + 5] * factor[0], Type{}),
                                    pack(o[r + 6] * factor[1], o[r + 7] * factor[1], Type{})};
    const int piece = r / 32, first = r % 32 / 4;
    ptx::stmatrix_x4(
        rows + piece * kWarpgroupRows * 128 + row * 128 + ((first + unit) ^ (row % 8)) * 16, words);
  }
}

/// The same rows by the copy engine, which leaves out rows and columns beyond the tensor.
template <typename Traits>
__device__ inline void copy_rows_out(Output<Traits>& out, const ItemNote& item, int m,
                                     std::uint8_t* tile, const AttentionArgs& args) {
  const float factor[2] = {output_factor<0>(out.o, out.l[0], out.unit[0].now),
                           output_factor<1>(out.o, out.l[1], out.unit[1].now)};
  // No warp of the warpgroup may still be at a product of the queries.
  ptx::barrier_sync(kTileBarrier + static_cast<int>(threadIdx.x) / kWarpgroupThreads,
                    kWarpgroupThreads);
  if (args.out.dtype == DType::bf16) {
    stage_rows<__nv_bfloat16>(out.o, factor, tile);
  } else {
    stage_rows<__half>(out.o, factor, tile);
  }
  ptx::fence_proxy_async();
  __syncwarp();
  if (threadIdx.x % 32 != 0) return;
  const int first = static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32 * 16;
  for (int piece = 0; piece < Traits::kVPieces; ++piece) {
    ptx::tma_store_4d(&args.out_map, tile + (piece * kWarpgroupRows + first) * 128, piece * 128,
                      m + first, item.head, item.batch);
  }
  ptx::tma_store_wait();
}

/// `tile`: this warpgroup's query rows in shared memory, which nothing needs any more where another
/// tile of them follows.
template <typename Traits>
__device__ inline void epilogue_16bit(Output<Traits>& out, const SoftmaxState& state,
                                      const ItemNote& item, int m, const RowNote* rows,
                                      std::uint8_t* tile, const AttentionArgs& args) {
#pragma unroll
  for (float& l : out.l) {  // sums of this thread's keys so far
    l += __shfl_xor_sync(0xffffffffu, l, 1);
    l += __shfl_xor_sync(0xffffffffu, l, 2);
  }
  if (!Traits::kStagesOutput || !args.copies_out) {
    finish_row<Traits, 0>(out, state, item, m, rows, args);
    finish_row<Traits, 1>(out, state, item, m, rows, args);
    return;
  }
  store_lse<Traits, 0>(out, state, item, m, rows, args);
  store_lse<Traits, 1>(out, state, item, m, rows, args);
  copy_rows_out(out, item, m, tile, args);
}

template <typename Traits>
__device__ inline void epilogue(Output<Traits>& out, const SoftmaxState& state,
                                const ItemNote& item, int m, const RowNote* rows,
                                const AttentionArgs& args) {
  finish_row<Traits, 0>(out, state, item, m, rows, args);
  finish_row<Traits, 1>(out, state, item, m, rows, args);
}

}  // namespace octavo::sm90
