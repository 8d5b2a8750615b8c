// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies from global to shared memory. PTX ISA, "cp.async" (non-bulk).
#pragma once

#include <cstdint>

namespace octavo::sm90::ptx {

/// 16 bytes from src + kOffset to dst + kDstOffset in shared memory, both on 16-byte boundaries.
template <int kOffset, int kDstOffset>
__device__ inline void cp_async_16(void* dst, const char* src) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(dst));
  asm volatile("cp.async.cg.shared.global [%0 + %2], [%1 + %3], 16;" ::"r"(at), "l"(src),
               "n"(kDstOffset), "n"(kOffset)
               : "memory");
}

/// 16 bytes to shared memory, or 16 zero bytes where `valid` is false (src is not read then). Both
/// addresses on 16-byte boundaries.
__device__ inline void cp_async_16(void* dst, const void* src, bool valid) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(dst));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(src),
               "r"(valid ? 16 : 0)
               : "memory");
}

/// Closes a group of this thread's copies.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace octavo::sm90::ptx
