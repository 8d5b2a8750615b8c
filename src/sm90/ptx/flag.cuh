// SPDX-License-Identifier: Apache-2.0
// Words in device memory by which one thread block tells another that it has written something.
// PTX ISA, "Memory Consistency Model": release and acquire patterns.
#pragma once

#include <cstdint>

namespace octavo::sm90::ptx {

/// After what this thread has written, and what others have that it has synchronised with.
__device__ inline void store_release(std::uint64_t* flag, std::uint64_t value) {
  asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ inline std::uint64_t load_acquire(const std::uint64_t* flag) {
  std::uint64_t value;
  asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}

/// Waits until the flag has this value; of a whole warp. With OCTAVO_BOUNDED_WAITS a wait of
/// several seconds ends the kernel with an error.
__device__ inline void wait_for_flag(const std::uint64_t* flag, std::uint64_t value) {
  constexpr unsigned kPause = 200;  // ns
  // A vote, so that the compiler knows lanes to stay together and keeps its uniform registers.
  const auto is_up = [&] { return __all_sync(0xffffffffu, load_acquire(flag) == value); };
#ifdef OCTAVO_BOUNDED_WAITS
  for (int attempt = 0; attempt < (1 << 24); ++attempt) {
    if (is_up()) return;
    __nanosleep(kPause);
  }
  __trap();
#else
  while (!is_up()) __nanosleep(kPause);
#endif
}

}  // namespace octavo::sm90::ptx
