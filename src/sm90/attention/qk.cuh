// SPDX-License-Identifier: Apache-2.0
// Stage `qk`: S = Q8 K8^T, 64 x 128 scores of one warpgroup, FP32 registers.
#pragma once

#include <cstddef>

#include "core/tile_table.h"
#include "sm90/attention/shared.h"
#include "sm90/ptx/opaque.cuh"
#include "sm90/ptx/wgmma.cuh"
#include "sm90/tile/fragment.h"

namespace octavo::sm90 {

inline constexpr int kScores = kBlockN / 2;  // registers a thread: 64 x 128 / 128

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

/// Starts the product of the tiles whose words (ptx::operand_word) are given.
template <typename Traits>
__device__ inline void start_qk(float (&s)[kScores], std::uint32_t q, std::uint32_t k) {
  constexpr std::uint32_t kQPiece = kWarpgroupRows * 128 / 16, kKPiece = kBlockN * 128 / 16;
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < Traits::kHeadDim / 32; ++step) {
    // 32 channels are 32 bytes of a row: 2 units of 16 bytes inside a piece of 128.
    const std::uint32_t inside = static_cast<std::uint32_t>(step % 4) * 2;
    const auto piece = static_cast<std::uint32_t>(step / 4);
    const std::uint64_t a = ptx::descriptor(q + piece * kQPiece + inside);
    const std::uint64_t b = ptx::descriptor(k + piece * kKPiece + inside);
    if (step == 0) {
      ptx::wgmma_ss<Traits::kKvFormat, false>(s, a, b);
    } else {
      ptx::wgmma_ss<Traits::kKvFormat, true>(s, a, b);
    }
  }
  ptx::wgmma_commit();
}

__device__ inline void finish_qk(float (&s)[kScores]) {
  ptx::wgmma_wait<0>();
  ptx::pin(s);
}

}  // namespace octavo::sm90
