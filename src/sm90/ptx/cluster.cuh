// SPDX-License-Identifier: Apache-2.0
// Thread block clusters: blocks on neighbouring multiprocessors that reach each other's shared
// memory. PTX ISA, "Cluster of Cooperative Thread Arrays", "mapa".
#pragma once

#include <cstdint>

#include "sm90/ptx/mbarrier.cuh"

namespace octavo::sm90::ptx {

/// Number of this thread block in its cluster, which the compiler reads anew each time: warps that
/// copy have few registers.
__device__ inline int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Waits until all threads of the cluster that have not ended are here.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}

/// Arrives at the same barrier of the other block of a cluster of two, if `arrives`. Predicated:
/// a branch would cut the caller's code in parts.
__device__ inline void mbarrier_arrive_at_peer(std::uint64_t* barrier, bool arrives) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      ".reg .b32 peer, there;\n"
      "setp.ne.b32 p, %1, 0;\n"
      "mov.u32 peer, %%cluster_ctarank;\n"
      "xor.b32 peer, peer, 1;\n"
      "mapa.shared::cluster.u32 there, %0, peer;\n"
      "@p mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(static_cast<int>(arrives))
      : "memory");
}

}  // namespace octavo::sm90::ptx
