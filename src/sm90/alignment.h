// SPDX-License-Identifier: Apache-2.0
// Boundaries in device memory that the kernels count on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/tensor.h"

namespace octavo::sm90 {

inline constexpr std::size_t kWorkspaceAlignment = 256;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

inline bool is_aligned(const void* workspace) {
  return reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment == 0;
}

/// Whether every row of a [b, s, h, d] tensor starts on a 16-byte boundary.
inline bool rows_are_wide(const TensorView& x) {
  const auto unit = static_cast<std::int64_t>(16 / size_of(x.dtype));
  return x.stride[0] % unit == 0 && x.stride[1] % unit == 0 && x.stride[2] % unit == 0 &&
         reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

}  // namespace octavo::sm90
