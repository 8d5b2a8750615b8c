// SPDX-License-Identifier: Apache-2.0
// The copy engine: boxes of a tensor to and from shared memory. PTX ISA, "cp.async.bulk.tensor".
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

/// The same to shared memory of each thread block of the cluster whose bit of `blocks` is set, and
/// counted by the same barrier of each.
__device__ inline void tma_load_4d_to(std::uint16_t blocks, void* dst, const CUtensorMap* map,
                                      std::uint64_t* barrier, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(dst)),
      "l"(reinterpret_cast<std::uint64_t>(map)), "r"(shared_address(barrier)), "r"(c0), "r"(c1),
      "r"(c2), "r"(c3), "h"(blocks)
      : "memory");
}

/// Copies shared memory to the box at (c0, c1, c2, c3); what lies outside the tensor is left out.
/// Writes to the source must have been followed by fence_proxy_async().
__device__ inline void tma_store_4d(const CUtensorMap* map, const void* src, int c0, int c1, int c2,
                                    int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          reinterpret_cast<std::uint64_t>(map)),
      "r"(shared_address(src)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

/// Makes a group of this thread's stores since the last one.
__device__ inline void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most kPending of this thread's groups have not read shared memory yet.
template <int kPending>
__device__ inline void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace octavo::sm90::ptx
