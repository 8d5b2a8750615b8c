// SPDX-License-Identifier: Apache-2.0
// Barriers of a thread block by number. PTX ISA, "bar".
#pragma once

namespace octavo::sm90::ptx {

/// Waits until `threads` threads, this one included, have come to barrier `id`.
__device__ inline void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Comes to the barrier without waiting.
__device__ inline void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace octavo::sm90::ptx
