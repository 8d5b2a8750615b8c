// SPDX-License-Identifier: Apache-2.0
// The forward kernel: one producer warp and two or three consumer warpgroups a thread block, one
// block a multiprocessor, work items in turn; or pairs of blocks that take an item together.
#pragma once

#include "sm90/attention/consumer.cuh"
#include "sm90/attention/load.cuh"
#include "sm90/ptx/warpgroup.cuh"

namespace octavo::sm90 {

/// The rows of ones beside V^T, which stay there.
template <typename Traits>
__device__ inline void set_ones(Shared<Traits>& shared) {
  constexpr std::uint32_t kOnes = Traits::kVFormat == DType::f8_e4m3 ? 0x38383838u : 0x3c3c3c3cu;
  constexpr int kWords = kOnesRows * Traits::kBlockN / 4;
  for (int i = static_cast<int>(threadIdx.x); i < Traits::kStages * kWords; i += Traits::kThreads) {
    auto* rows = reinterpret_cast<std::uint32_t*>(shared.v[i / kWords] +
                                                  Traits::kHeadDimV * Traits::kBlockN);
    rows[i % kWords] = kOnes;
  }
}

/// Barriers and ones.
template <typename Traits>
__device__ inline void set_up(Shared<Traits>& shared) {
  constexpr int kConsumerWarps = Traits::kConsumers * kWarpgroupThreads / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Traits::kQStages; ++i) {
      ptx::mbarrier_init(&shared.q_full[i], 32);
      ptx::mbarrier_init(&shared.q_empty[i], kConsumerWarps);
    }
    for (int i = 0; i < Traits::kStages; ++i) {
      ptx::mbarrier_init(&shared.k_full[i], Traits::kKWriters);
      ptx::mbarrier_init(&shared.v_full[i], Traits::kVWriters);
      ptx::mbarrier_init(&shared.k_empty[i], kConsumerWarps * Traits::kCluster);
      ptx::mbarrier_init(&shared.v_empty[i], kConsumerWarps * Traits::kCluster);
    }
    ptx::mbarrier_init(&shared.v_landed, 1);
    ptx::fence_barrier_init();
  }
  if constexpr (!Traits::k16Bit) set_ones(shared);
  ptx::fence_proxy_async();
  Cluster<Traits::kCluster>::sync_set_up();
}

template <typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    attention_kernel(const __grid_constant__ AttentionArgs args) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<Traits>*>(memory);
  set_up(shared);
  if (threadIdx.x >= Traits::kConsumers * kWarpgroupThreads) {
    ptx::give_registers<Traits::kShape.producer_registers>();
    if (threadIdx.x < Traits::kConsumers * kWarpgroupThreads + 32) {
      Producer<Traits>(args, shared).run();
    }
  } else {
    ptx::take_registers<Traits::kShape.consumer_registers>();
    Consumer<Traits>(args, shared).run();
  }
}

}  // namespace octavo::sm90
