// SPDX-License-Identifier: Apache-2.0
// What Hopper's copy engine can read or write where it is. CUDA driver API, cuTensorMapEncodeTiled.
#pragma once

#include <cstdint>

#include "octavo/tensor.h"

namespace octavo {

/// Whether axis i of a [b, s, h, d] tensor repeats the same elements.
inline bool is_broadcast(const TensorView& x, int i) { return x.shape[i] > 1 && x.stride[i] == 0; }
inline bool is_broadcast(const TensorView& x) {
  return is_broadcast(x, 0) || is_broadcast(x, 1) || is_broadcast(x, 2);
}

/// A [b, s, h, d] tensor with a last stride of 1: its base and strides must be positive multiples
/// of 16 bytes. Of an extent of 1 the stride does not matter.
inline bool copy_engine_reads(const TensorView& x) {
  const auto fits = [&](int i) {
    return x.shape[i] <= 1 ||
           (x.stride[i] > 0 && x.stride[i] * static_cast<std::int64_t>(size_of(x.dtype)) % 16 == 0);
  };
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && fits(0) && fits(1) && fits(2);
}

}  // namespace octavo
