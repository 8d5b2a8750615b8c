// SPDX-License-Identifier: Apache-2.0
// 8 x 8 matrices of 16-bit elements from accumulators to shared memory. PTX ISA, "stmatrix".
#pragma once

#include <cstdint>

#include "sm90/ptx/mbarrier.cuh"

namespace octavo::sm90::ptx {

/// Stores four matrices: of matrix i a thread holds row lane / 4, columns 2 (lane % 4) + {0, 1} in
/// words[i]; `row` is where row lane % 8 of matrix lane / 8 goes, 16 bytes.
__device__ inline void stmatrix_x4(void* row, const std::uint32_t (&words)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
      : "memory");
}

}  // namespace octavo::sm90::ptx
