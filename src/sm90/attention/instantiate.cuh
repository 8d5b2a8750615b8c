// SPDX-License-Identifier: Apache-2.0
// What a file of instances/ includes before it names its head dims.
#pragma once

#include "sm90/attention/kernel.cuh"
#include "sm90/attention/launch.h"
#include "sm90/attention/traits.h"

namespace octavo::sm90 {

template <typename Traits>
AttentionKernel kernel_of(const char* name) {
  static_assert(sizeof(Shared<Traits>) <= kSharedMemoryLimit,
                "tile_table.h: fewer stages, or they do not fit shared memory");
  return {reinterpret_cast<const void*>(&attention_kernel<Traits>),
          name,
          Traits::kThreads,
          Traits::kCluster,
          Traits::kItemRows,
          sizeof(Shared<Traits>),
          Traits::kBlockN,
          Traits::kShape.relay_from,
          sizeof(BatonMemory<Traits>)};
}

/// A kernel for pairs of thread blocks, where they gain (tile_table.h).
template <int kD, int kDv, DType kFormat, typename Scores>
AttentionKernel pair_of(const char* name) {
  if constexpr (Traits<kD, kDv, kFormat, Scores>::kShape.pairs) {
    return kernel_of<Traits<kD, kDv, kFormat, Scores, 2>>(name);
  } else {
    return {};
  }
}

template <int kD, int kDv>
AttentionKernels attention_kernels() {
  constexpr DType kE4m3 = DType::f8_e4m3, kE5m2 = DType::f8_e5m2, kInt8 = DType::i8;
  constexpr DType kBf16 = DType::bf16, kF16 = DType::f16;
  return {{kernel_of<Traits<kD, kDv, kE4m3, PlainScores>>("plain"),
           kernel_of<Traits<kD, kDv, kE4m3, GeneralScores>>("general"),
           kernel_of<Traits<kD, kDv, kE4m3, FoldedScores>>("folded"),
           kernel_of<Traits<kD, kDv, kE4m3, Direct<PlainScores>>>("direct"),
           kernel_of<Traits<kD, kDv, kE4m3, Direct<GeneralScores>>>("general_direct"),
           pair_of<kD, kDv, kE4m3, PlainScores>("pair"),
           pair_of<kD, kDv, kE4m3, Direct<PlainScores>>("direct_pair")},
          {kernel_of<Traits<kD, kDv, kInt8, PlainScores>>("plain_int8"),
           kernel_of<Traits<kD, kDv, kInt8, GeneralScores>>("general_int8"),
           kernel_of<Traits<kD, kDv, kInt8, FoldedScores>>("folded_int8"),
           kernel_of<Traits<kD, kDv, kInt8, Direct<PlainScores>>>("direct_int8"),
           kernel_of<Traits<kD, kDv, kInt8, Direct<GeneralScores>>>("general_direct_int8"),
           pair_of<kD, kDv, kInt8, PlainScores>("pair_int8"),
           pair_of<kD, kDv, kInt8, Direct<PlainScores>>("direct_pair_int8")},
          kernel_of<Traits<kD, kDv, kE5m2, GeneralScores>>("general_e5m2"),
          kernel_of<Traits<kD, kDv, kE5m2, FoldedScores>>("folded_e5m2"),
          {kernel_of<Traits<kD, kDv, kBf16, PlainScores>>("plain_bf16"),
           kernel_of<Traits<kD, kDv, kBf16, GeneralScores>>("general_bf16"),
           pair_of<kD, kDv, kBf16, PlainScores>("pair_bf16")},
          {kernel_of<Traits<kD, kDv, kF16, PlainScores>>("plain_fp16"),
           kernel_of<Traits<kD, kDv, kF16, GeneralScores>>("general_fp16"),
           pair_of<kD, kDv, kF16, PlainScores>("pair_fp16")}};
}

}  // namespace octavo::sm90
