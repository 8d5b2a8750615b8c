// SPDX-License-Identifier: Apache-2.0
// Where a warp stands in a ring of shared-memory stages.
#pragma once

#include <cstdint>

namespace octavo::sm90 {

/// A position in the ring. A barrier `full` is waited for with phase(); a barrier `empty` by the
/// producer with empty_phase(), which lets the first round pass.
template <int kStages>
struct RingState {
  int at = 0;
  std::uint32_t round = 0;

  __device__ int stage() const { return at; }
  __device__ std::uint32_t phase() const { return round & 1; }
  __device__ std::uint32_t empty_phase() const { return phase() ^ 1; }
  __device__ void advance() {
    if (++at == kStages) {
      at = 0;
      ++round;
    }
  }
};

}  // namespace octavo::sm90
