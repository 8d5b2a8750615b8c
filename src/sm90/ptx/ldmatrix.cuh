// SPDX-License-Identifier: Apache-2.0
// 8 x 8 matrices of 16-bit elements from shared memory to operand fragments. PTX ISA, "ldmatrix".
#pragma once

#include <cstdint>

#include "sm90/ptx/mbarrier.cuh"

namespace octavo::sm90::ptx {

/// Loads four matrices: of matrix i a thread gets row lane / 4, 4 bytes at 4 (lane % 4), in
/// words[i]; `row` is where row lane % 8 of matrix lane / 8 stands, 16 bytes.
__device__ inline void ldmatrix_x4(std::uint32_t* words, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
}

}  // namespace octavo::sm90::ptx
