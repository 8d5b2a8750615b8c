// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals and bytes. PTX ISA, "mbarrier".
#pragma once

#include <cstdint>

namespace octavo::sm90::ptx {

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ inline void mbarrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

/// Makes the initialisation of barriers visible to the copy engine. PTX ISA, "fence.proxy".
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void mbarrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

/// Announces `bytes` of asynchronous copies, before the phase's last arrival.
__device__ inline void mbarrier_expect_tx(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// One arrival that announces `bytes` of asynchronous copies.
__device__ inline void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ inline bool mbarrier_try_wait(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

/// Waits for the end of the phase of this parity. With OCTAVO_BOUNDED_WAITS a wait of several
/// seconds, which can only be a wrong phase, ends the kernel with an error. Named barriers
/// (tile/turns.cuh) are not bounded.
__device__ inline void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
#ifdef OCTAVO_BOUNDED_WAITS
  for (int attempt = 0; attempt < (1 << 22); ++attempt) {
    if (mbarrier_try_wait(barrier, parity)) return;
  }
  __trap();
#else
  while (!mbarrier_try_wait(barrier, parity)) {
  }
#endif
}

/// Makes this thread's ordinary writes to shared memory visible to the tensor cores and the copy
/// engine once a barrier has been passed. PTX ISA, "fence.proxy.async".
__device__ inline void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace octavo::sm90::ptx
