// SPDX-License-Identifier: Apache-2.0
// Stage `baton`: what the first leg of a work item leaves to the second (tile/relay.h), in device
// memory: O, l and m of every row and the unit of O, as they stand in registers.
//
// Each warp hands its rows to the same warp of the other thread block, by a flag of its own, and
// the producer the unit that the next key tile is brought to. A flag is up where it holds the
// launch's ticket, a number that no other launch has; who takes the baton takes the flag down, so
// that a graph can repeat the launch in the same memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm90/attention/args.h"
#include "sm90/attention/pv.cuh"
#include "sm90/ptx/flag.cuh"

namespace octavo::sm90 {

/// One thread block's, in device memory.
template <typename Traits>
struct alignas(256) BatonMemory {
  static constexpr int kWarps = Traits::kConsumers * kWarpgroupThreads / 32;
  static constexpr int kValues = Traits::kHeadDimV / 2 + 4;  // of a thread

  std::uint64_t flag[kWarps + 1];  // the last one: the producer's
  OutputUnit unit;
  float values[kWarps][kValues][32];
};

template <typename Traits>
class Baton {
 public:
  /// `index` as in Leg, `rank`: of this thread block in its cluster.
  __device__ Baton(const AttentionArgs& args, int index, int rank)
      : memory_(static_cast<Memory*>(args.batons)[index * Traits::kCluster + rank]),
        ticket_(args.ticket) {}

  /// By a warp of consumers.
  __device__ void hand(Output<Traits>& out, SoftmaxState& state) const {
    for_each(out, state, [&](int i, float value) { __stcg(place(i), value); });
    raise(warp());
  }
  __device__ void take(Output<Traits>& out, SoftmaxState& state) const {
    ptx::wait_for_flag(&memory_.flag[warp()], ticket_);
    for_each(out, state, [&](int i, float& value) { value = __ldcg(place(i)); });
    lower(warp());
  }

  /// By the producer's warp.
  __device__ void hand_unit(const OutputUnit& unit) const {
    if (lane() == 0) memory_.unit = unit;
    raise(Memory::kWarps);
  }
  __device__ void take_unit(OutputUnit& unit) const {
    ptx::wait_for_flag(&memory_.flag[Memory::kWarps], ticket_);
    unit = memory_.unit;
    lower(Memory::kWarps);
  }

 private:
  using Memory = BatonMemory<Traits>;

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  /// Not four at a time: a vector would ask for registers next to each other.
  __device__ float* place(int i) const { return &memory_.values[warp()][i][lane()]; }

  /// Calls body(i, value) for the i-th value of this thread.
  template <typename Body>
  __device__ static void for_each(Output<Traits>& out, SoftmaxState& state, const Body& body) {
    constexpr int kOutputs = Traits::kHeadDimV / 2;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) body(i, out.o[i]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      body(kOutputs + half, out.l[half]);
      body(kOutputs + 2 + half, state.m[half]);
    }
  }

  __device__ void raise(int flag) const {
    __syncwarp();
    if (lane() == 0) ptx::store_release(&memory_.flag[flag], ticket_);
  }
  __device__ void lower(int flag) const {
    __syncwarp();
    if (lane() == 0) memory_.flag[flag] = 0;
  }

  Memory& memory_;
  const std::uint64_t ticket_;
};

}  // namespace octavo::sm90
