// SPDX-License-Identifier: Apache-2.0
// Matrix products of one warp. PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".
#pragma once

#include <cstdint>

#include "octavo/tensor.h"

namespace octavo::sm90::ptx {

/// D = A B, 16 x 8 of FP32, A and B 16 x 16 and 16 x 8 of BF16 or FP16: of a thread (g = lane / 4,
/// t = lane % 4)
///
///   a   rows g, g + 8 of columns 2 t, 2 t + 1, then of columns 2 t + 8, 2 t + 9
///   b   rows 2 t, 2 t + 1 of column g, then rows 2 t + 8, 2 t + 9
///   d   columns 2 t, 2 t + 1 of row g, then of row g + 8
template <DType kType>
__device__ inline void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                   std::uint32_t b1) {
  if constexpr (kType == DType::f16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %10, %10, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  } else {
    static_assert(kType == DType::bf16);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %10, %10, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  }
}

}  // namespace octavo::sm90::ptx
