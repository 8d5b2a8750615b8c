// SPDX-License-Identifier: Apache-2.0
// Thread blocks of a cluster that take a work item together: each has rows of its own, all have the
// same key tiles, and each copies some parts of a tile to the shared memory of all. L2 then reads a
// tile once for all of them.
//
//   copies   part 0 of K: block 0, part 1: block 1, ..   of V: the other way round
//   full     each block's barrier counts all bytes of the tile, whoever copied them
//   empty    each block's barrier counts the warps of all blocks, which it copies to
//
// A cluster of one is a thread block by itself, without any of this.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sm90/ptx/cluster.cuh"
#include "sm90/ptx/tma.cuh"

namespace octavo::sm90 {

template <int kBlocks>
struct Cluster {
  static_assert(kBlocks == 1 || kBlocks == 2);

  /// Of this thread block in its cluster.
  __device__ static int rank() {
    if constexpr (kBlocks == 1) return 0;
    return ptx::cluster_rank();
  }

  /// Waits until barriers are there in all blocks. Of all threads.
  __device__ static void sync_set_up() {
    if constexpr (kBlocks > 1) {
      ptx::cluster_sync();
    } else {
      __syncthreads();
    }
  }

  /// Before a thread ends: others may still write to this block's shared memory.
  __device__ static void sync_end() {
    if constexpr (kBlocks > 1) ptx::cluster_sync();
  }

  /// Copies a box to all blocks, if it is this one's part. Of one thread.
  __device__ static void load(int part, void* to, const CUtensorMap* map, std::uint64_t* full,
                              int c0, int c1, int c2, int c3) {
    if constexpr (kBlocks == 1) {
      ptx::tma_load_4d(to, map, full, c0, c1, c2, c3);
    } else if (part % kBlocks == rank()) {
      ptx::tma_load_4d_to((1 << kBlocks) - 1, to, map, full, c0, c1, c2, c3);
    }
  }

  /// Arrives at the same barrier of all blocks, if `arrives`.
  __device__ static void arrive(std::uint64_t* barrier, bool arrives) {
    if (arrives) ptx::mbarrier_arrive(barrier);
    if constexpr (kBlocks > 1) ptx::mbarrier_arrive_at_peer(barrier, arrives);
  }
};

}  // namespace octavo::sm90
