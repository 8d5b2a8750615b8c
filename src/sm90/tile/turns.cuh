// SPDX-License-Identifier: Apache-2.0
// Two consumer warpgroups that start their matrix products in turn. Left alone they run in step:
// both wait for the tensor cores, then both for the exponentials.
//
//   take()  P V of a tile, QK of the next  pass()  softmax  take()  ..
//
// Each warpgroup takes as many turns as the other: one a key tile of the block, seen or not.
#pragma once

#include "sm90/ptx/named_barrier.cuh"
#include "sm90/tile/fragment.h"

namespace octavo::sm90 {

template <bool kTakesTurns>
class Turns {
 public:
  __device__ explicit Turns(int warpgroup) : warpgroup_(warpgroup) {}

  /// Gives the first turn to warpgroup 0.
  __device__ void begin() const {
    if (warpgroup_ == 1) pass();
  }
  __device__ void take() const {
    if constexpr (kTakesTurns) ptx::barrier_sync(barrier_of(warpgroup_), 2 * kWarpgroupThreads);
  }
  __device__ void pass() const {
    if constexpr (kTakesTurns) {
      ptx::barrier_arrive(barrier_of(1 - warpgroup_), 2 * kWarpgroupThreads);
    }
  }

 private:
  /// Number 0 is __syncthreads.
  __device__ static int barrier_of(int warpgroup) { return warpgroup + 1; }

  const int warpgroup_;
};

}  // namespace octavo::sm90
