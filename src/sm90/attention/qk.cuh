// SPDX-License-Identifier: Apache-2.0
// Stage `qk`: S = Q K^T, 64 x kBlockN scores of one warpgroup, FP32 registers.
//
// INT8 products have INT32 sums. Where the softmax comes next, they begin at the bits of kInt8Zero
// instead of 0 and so end as those of the FP32 numbers kInt8Zero + S (core/int8.h): scores without
// a conversion, which the softmax's multiply-add takes for what they are. All of them are positive,
// so that their maximum is one of integers. Where descales per key or a softcap come first, sums
// are converted.
#pragma once

#include <cstddef>
#include <type_traits>

#include "core/tile_table.h"
#include "sm90/attention/shared.h"
#include "sm90/ptx/ldmatrix.cuh"
#include "sm90/ptx/opaque.cuh"
#include "sm90/ptx/wgmma.cuh"
#include "sm90/tile/fragment.h"

namespace octavo::sm90 {

/// Operands in shared memory as products take them (ptx::operand_word), by stage.
template <typename Traits>
class OperandWords {
 public:
  __device__ explicit OperandWords(const Shared<Traits>& shared)
      : base_(ptx::uniform(static_cast<int>(ptx::operand_word(&shared)))) {}

  __device__ std::uint32_t q(int stage, int warpgroup) const {
    return at(offsetof(Shared<Traits>, q), sizeof(Shared<Traits>::q[0]), stage) +
           static_cast<std::uint32_t>(warpgroup) * (sizeof(Shared<Traits>::q[0][0]) / 16);
  }
  __device__ std::uint32_t k(int stage) const {
    return at(offsetof(Shared<Traits>, k), sizeof(Shared<Traits>::k[0]), stage);
  }
  __device__ std::uint32_t v(int stage) const {
    return at(offsetof(Shared<Traits>, v), sizeof(Shared<Traits>::v[0]), stage);
  }

 private:
  __device__ std::uint32_t at(std::size_t offset, std::size_t stage_bytes, int stage) const {
    return static_cast<std::uint32_t>(base_) + static_cast<std::uint32_t>(offset / 16) +
           static_cast<std::uint32_t>(stage) * static_cast<std::uint32_t>(stage_bytes / 16);
  }

  const int base_;
};

/// An accumulator.
template <typename Traits>
using QkSum = std::conditional_t<Traits::kInt8, int, float>;

/// The word of 32 bytes of each of kRows rows that begin at `word`: 2 units of 16 bytes inside a
/// piece of 128.
template <int kRows>
__device__ inline std::uint32_t word_of_step(std::uint32_t word, int step) {
  constexpr std::uint32_t kPiece = kRows * 128 / 16;
  return word + static_cast<std::uint32_t>(step / 4) * kPiece +
         static_cast<std::uint32_t>(step % 4) * 2;
}

/// A warpgroup's rows of Q as the A operand, in shared memory.
template <typename Traits>
class QueriesInMemory {
 public:
  /// `q`: the rows as the copy engine has left them, `word` of them.
  __device__ void begin(const std::uint8_t*, std::uint32_t word) { word_ = word; }

  /// Of 32 bytes of the reduction.
  __device__ std::uint64_t operand(int step) const {
    return ptx::descriptor(word_of_step<kWarpgroupRows>(word_, step));
  }

 private:
  std::uint32_t word_;
};

/// The same in registers, from which products read them for less power.
template <typename Traits>
class QueriesInRegisters {
 public:
  __device__ void begin(const std::uint8_t* q, std::uint32_t) {
    constexpr int kPiece = kWarpgroupRows * 128;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row =
        static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32 * kWarpRows + lane % kWarpRows;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int unit = step % 4 * 2 + lane / kWarpRows;
      ptx::ldmatrix_x4(fragments_ + 4 * step, q + step / 4 * kPiece + swizzled_offset(row, unit));
    }
  }

  __device__ const std::uint32_t* operand(int step) const { return fragments_ + 4 * step; }

 private:
  static constexpr int kSteps = Traits::kHeadDim * Traits::kBytes / 32;
  std::uint32_t fragments_[4 * kSteps];
};

template <typename Traits>
using Queries = std::conditional_t<Traits::kShape.q_in_registers, QueriesInRegisters<Traits>,
                                   QueriesInMemory<Traits>>;

/// One step of the reduction, the first of which needs no accumulators that begin at 0.
template <typename Traits, bool kFirst>
__device__ inline void qk_step(QkSum<Traits> (&sums)[Traits::kScores], std::uint64_t a,
                               std::uint64_t b) {
  if constexpr (Traits::kInt8) {
    ptx::wgmma_ss<(!kFirst || Traits::kScoreZero > 0)>(sums, a, b);
  } else {
    ptx::wgmma_ss<Traits::kKFormat, !kFirst>(sums, a, b);
  }
}
template <typename Traits, bool kFirst>
__device__ inline void qk_step(QkSum<Traits> (&sums)[Traits::kScores], const std::uint32_t* a,
                               std::uint64_t b) {
  if constexpr (Traits::kInt8) {
    ptx::wgmma_rs<(!kFirst || Traits::kScoreZero > 0)>(sums, a, b);
  } else {
    ptx::wgmma_rs<Traits::kKFormat, !kFirst>(sums, a, b);
  }
}

/// Has sums begin at what stands for 0. `nothing` is 0, which the compiler does not know: then
/// these are multiply-adds, which take half the time of moves.
template <typename Traits>
__device__ inline void set_to_zero(int (&sums)[Traits::kScores], float nothing) {
#pragma unroll
  for (int r = 0; r < Traits::kScores; ++r) {
    sums[r] = __float_as_int(__fmaf_rn(nothing, static_cast<float>(r + 1), Traits::kScoreZero));
  }
}

/// Starts the product of the queries and the keys whose word (ptx::operand_word) is given.
template <typename Traits>
__device__ inline void start_qk(QkSum<Traits> (&sums)[Traits::kScores], const Queries<Traits>& q,
                                std::uint32_t k, [[maybe_unused]] float nothing) {
  if constexpr (Traits::kScoreZero > 0) set_to_zero<Traits>(sums, nothing);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < Traits::kHeadDim * Traits::kBytes / 32; ++step) {
    const std::uint64_t b = ptx::descriptor(word_of_step<Traits::kBlockN>(k, step));
    if (step == 0) {
      qk_step<Traits, true>(sums, q.operand(step), b);
    } else {
      qk_step<Traits, false>(sums, q.operand(step), b);
    }
  }
  ptx::wgmma_commit();
}

/// The scores, of which Traits::kScoreZero stands for 0. kPending: groups of products that were
/// committed after theirs.
template <typename Traits, int kPending = 0>
__device__ inline void finish_qk(QkSum<Traits> (&sums)[Traits::kScores],
                                 float (&s)[Traits::kScores]) {
  ptx::wgmma_wait<kPending>();
  ptx::pin(sums);
#pragma unroll
  for (int r = 0; r < Traits::kScores; ++r) {
    if constexpr (Traits::kInt8) {
      s[r] = Traits::kScoreZero > 0 ? __int_as_float(sums[r]) : __int2float_rn(sums[r]);
    } else {
      s[r] = sums[r];
    }
  }
}

}  // namespace octavo::sm90
