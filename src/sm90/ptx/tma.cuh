// SPDX-License-Identifier: Apache-2.0
// The copy engine: boxes of a tensor to shared memory. PTX ISA, "cp.async.bulk.tensor".
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sm90/ptx/mbarrier.cuh"

namespace octavo::sm90::ptx {

/// Copies the box at (c0, c1, c2, c3) of a rank-4 tensor, innermost coordinate first; elements
/// outside the tensor become 0. `barrier` counts the box's bytes.
__device__ inline void tma_load_4d(void* dst, const CUtensorMap* map, std::uint64_t* barrier,
                                   int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(dst)),
      "l"(reinterpret_cast<std::uint64_t>(map)), "r"(shared_address(barrier)), "r"(c0), "r"(c1),
      "r"(c2), "r"(c3)
      : "memory");
}

}  // namespace octavo::sm90::ptx
