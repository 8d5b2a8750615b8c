// SPDX-License-Identifier: Apache-2.0
// Stage `epilogue`: O / l in the output type, LSE = (m + log2 l - 8) ln 2 + sm_scale * shift.
//
// 16-bit outputs go to shared memory and from there out by the copy engine, 64 columns at a time.
// FP32 outputs, and 16-bit ones off 16-byte boundaries, go straight from registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "sm90/attention/args.h"
#include "sm90/attention/pv.cuh"
#include "sm90/attention/scores.cuh"
#include "sm90/attention/store.cuh"
#include "sm90/ptx/math.cuh"
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

/// Row kHalf, times `factor`, in FP32; rows on 16-byte boundaries.
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
  if (args.wide_stores) {
    store_wide_fp32<kHalf>(o, factor, row);
  } else {
    store_anywhere<kHalf>(o, factor, row, args.out.dtype);
  }
}

/// What a thread's two rows are multiplied with: their unit / l. Rows that have seen no key become
/// 0 here, whatever 0 times V has made of them; where a factor would leave FP32's normal range, 1 /
/// l comes first.
template <typename Traits>
__device__ inline void output_factors(Output<Traits>& out, float (&factor)[2]) {
  const float inverse[2] = {out.l[0] == 0 ? 0.0f : ptx::rcp_approx(out.l[0]),
                            out.l[1] == 0 ? 0.0f : ptx::rcp_approx(out.l[1])};
  factor[0] = inverse[0] * out.unit[0].now;
  factor[1] = inverse[1] * out.unit[1].now;
  if (!__any_sync(0xffffffffu, fminf(factor[0], factor[1]) < 0x1p-100f)) [[likely]]
    return;
#pragma unroll
  for (int r = 0; r < Traits::kHeadDimV / 2; ++r) {
    const int half = fragment_half(r);
    out.o[r] = out.l[half] == 0 ? 0.0f : out.o[r] * inverse[half];
  }
  factor[0] = out.unit[0].now;
  factor[1] = out.unit[1].now;
}

template <typename Traits, int kHalf>
__device__ inline void store_lse(const Output<Traits>& out, const SoftmaxState& state,
                                 const ItemNote& item, int m, const RowNote* rows,
                                 const AttentionArgs& args) {
  const int row = m + own_row() + 8 * kHalf;
  if (!is_row(args, row) || args.lse.data == nullptr || threadIdx.x % 4 != 0) return;
  const float l = out.l[kHalf];
  // Inside a softcap the shift has been put back already.
  const float shift =
      args.softcap_scale > 0 ? 0.0f : args.sm_scale * rows[own_row() + 8 * kHalf].shift;
  const float log2_sum = state.m[kHalf] + (log2f(l) - kPExponentShift);
  *args.lse.at(item.batch, item.head, row, item.split) =
      l == 0 ? -INFINITY : __fmaf_rn(log2_sum, static_cast<float>(kLn2), shift);
}

template <typename Traits, int kHalf>
__device__ inline void finish_row(const Output<Traits>& out, float factor, const ItemNote& item,
                                  int m, const AttentionArgs& args) {
  const int row = m + own_row() + 8 * kHalf;
  OutputRow to;
  if (is_row(args, row)) {
    const std::int64_t offset = args.out.offset(item.batch, item.head, row, item.split);
    to = {static_cast<std::byte*>(args.out.data) +
              offset * static_cast<std::int64_t>(size_of(args.out.dtype)),
          args.dv};
  }
  store_row<kHalf>(out.o, factor, to, args);
}

/// Barrier of the first warpgroup; Turns have those before.
inline constexpr int kTileBarrier = 3;

/// 64 columns of a warp's kWarpRows rows in 16 bits, from registers [kPiece * 32, ..), to its part
/// of a buffer of the warpgroup, swizzled.
template <typename Type, int kPiece, int kCount>
__device__ inline void stage_rows(const float (&o)[kCount], const float (&factor)[2],
                                  std::uint8_t* rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = lane % kWarpRows,
            unit = lane / kWarpRows;  // this lane's row, and which of two 8 columns
  constexpr int kFirst = kPiece * 32, kEnd = std::min(kFirst + 32, kCount);
#pragma unroll
  for (int r = kFirst; r < kEnd; r += 8) {  // 16 columns
    const std::uint32_t words[4] = {pack(o[r] * factor[0], o[r + 1] * factor[0], Type{}),
                                    pack(o[r + 2] * factor[1], o[r + 3] * factor[1], Type{}),
                                    pack(o[r + 4] * factor[0], o[r + 5] * factor[0], Type{}),
                                    pack(o[r + 6] * factor[1], o[r + 7] * factor[1], Type{})};
    ptx::stmatrix_x4(rows + swizzled_offset(row, (r - kFirst) / 4 + unit), words);
  }
}

/// Where a warpgroup's outputs are staged. The last pieces go to buffers of their own, so that
/// those where the query rows were fall free first.
template <typename Traits>
class OutputBuffers {
 public:
  static constexpr int kCount = Traits::kOutBuffers + Traits::kQBuffers;

  __device__ OutputBuffers(Shared<Traits>& shared, int q_stage, int warpgroup)
      : own_(shared.out[warpgroup][0]), q_(shared.q[q_stage][warpgroup][0]) {}

  template <int kPiece>
  __device__ std::uint8_t* of() const {
    constexpr int kAt = (Traits::kOutPieces - 1 - kPiece) % kCount;
    constexpr int kBytes = kWarpgroupRows * 128;
    return kAt < Traits::kOutBuffers ? own_ + kAt * kBytes
                                     : q_ + (kAt - Traits::kOutBuffers) * kBytes;
  }

 private:
  std::uint8_t *own_, *q_;
};

/// Pieces [kBegin, ..) of a warp's rows, by the copy engine, which leaves out rows and columns
/// beyond the tensor: first as many as there are buffers, then each when one falls free.
template <typename Traits, typename Type, int kBegin = 0>
__device__ inline void copy_pieces_out(const float (&o)[Traits::kHeadDimV / 2],
                                       const float (&factor)[2], const ItemNote& item, int m,
                                       const OutputBuffers<Traits>& buffers,
                                       const AttentionArgs& args) {
  constexpr int kBuffers = OutputBuffers<Traits>::kCount;
  constexpr int kEnd = kBegin == 0 ? std::min(kBuffers, Traits::kOutPieces) : kBegin + 1;
  if constexpr (kBegin > 0) {  // what was in this buffer must have left
    ptx::tma_store_wait<kBuffers - 1>();
    __syncwarp();
  }
  const int first = static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32 * kWarpRows;
  for_steps<kBegin, kEnd>([&](auto piece) {
    stage_rows<Type, piece>(o, factor, buffers.template of<piece>() + first * 128);
  });
  ptx::fence_proxy_async();
  __syncwarp();
  // The copy engine refuses to write at rows below 0, where whole warpgroups may stand.
  const bool stores = threadIdx.x % 32 == 0 && m >= 0;
  for_steps<kBegin, kEnd>([&](auto piece) {
    if (stores) {
      ptx::tma_store_4d(&args.out_map, buffers.template of<piece>() + first * 128, piece * 128,
                        m + first, item.head, item.batch);
    }
    ptx::tma_store_commit();
  });
  if constexpr (kEnd < Traits::kOutPieces) {
    copy_pieces_out<Traits, Type, kEnd>(o, factor, item, m, buffers, args);
  }
}

template <typename Traits>
__device__ inline void copy_out(const Output<Traits>& out, const float (&factor)[2],
                                const ItemNote& item, int m, const OutputBuffers<Traits>& buffers,
                                const AttentionArgs& args) {
  ptx::tma_store_wait<0>();  // of the item before
  if constexpr (Traits::kQBuffers > 0) {
    // No warp of the warpgroup may still be at a product of the queries.
    ptx::barrier_sync(kTileBarrier + static_cast<int>(threadIdx.x) / kWarpgroupThreads,
                      kWarpgroupThreads);
  } else {
    __syncwarp();
  }
  if (args.out.dtype == DType::bf16) {
    copy_pieces_out<Traits, __nv_bfloat16>(out.o, factor, item, m, buffers, args);
  } else {
    copy_pieces_out<Traits, __half>(out.o, factor, item, m, buffers, args);
  }
  // Each warp lets the queries go next.
  if constexpr (Traits::kQBuffers > 0) ptx::tma_store_wait<Traits::kOutBuffers>();
}

template <typename Traits>
__device__ inline void epilogue(Output<Traits>& out, const SoftmaxState& state,
                                const ItemNote& item, int m, const RowNote* rows,
                                const OutputBuffers<Traits>& buffers, const AttentionArgs& args) {
  if constexpr (Traits::k16Bit) {
#pragma unroll
    for (float& l : out.l) {  // sums of this thread's keys so far
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
    }
  }
  store_lse<Traits, 0>(out, state, item, m, rows, args);
  store_lse<Traits, 1>(out, state, item, m, rows, args);
  float factor[2];
  output_factors(out, factor);
  if (args.copies_out) {
    copy_out(out, factor, item, m, buffers, args);
  } else {
    finish_row<Traits, 0>(out, factor[0], item, m, args);
    finish_row<Traits, 1>(out, factor[1], item, m, args);
  }
}

}  // namespace octavo::sm90
