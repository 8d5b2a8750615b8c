// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace octavo::sm90::ptx {

/// The launch's dynamic shared memory, on a 128-byte boundary.
__device__ inline char* dynamic_shared() {
  extern __shared__ __align__(128) char memory[];
  return memory;
}

}  // namespace octavo::sm90::ptx
