// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies from global to shared memory. PTX ISA, "cp.async" (non-bulk).
#pragma once

#include <cstdint>

namespace octavo::sm90::ptx {

/// 16 bytes to shared memory, or 16 zero bytes where `valid` is false (src is not read then). Both
/// addresses on 16-byte boundaries.
__device__ inline void cp_async_16(void* dst, const void* src, bool valid) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(dst));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(src), "r"(valid ? 16 : 0)
               : "memory");
}

/// Waits for all of this thread's copies.
__device__ inline void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace octavo::sm90::ptx
