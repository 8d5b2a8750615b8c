// SPDX-License-Identifier: Apache-2.0
// Stage `qk`: S = Q8 K8^T, 64 x 128 scores of one warpgroup, FP32 registers.
#pragma once

#include "core/tile_table.h"
#include "sm90/ptx/wgmma.cuh"
#include "sm90/tile/fragment.h"

namespace octavo::sm90 {

inline constexpr int kScores = kBlockN / 2;  // registers a thread: 64 x 128 / 128

/// Of the tiles whose words (ptx::operand_word) are given; waits for the product.
template <typename Traits>
__device__ inline void qk(float (&s)[kScores], std::uint32_t q, std::uint32_t k) {
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
  ptx::wgmma_wait<0>();
  ptx::pin(s);
}

}  // namespace octavo::sm90
