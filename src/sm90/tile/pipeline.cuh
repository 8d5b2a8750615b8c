// SPDX-License-Identifier: Apache-2.0
// Where a warp stands in a ring of shared-memory stages.
#pragma once

#include <cstdint>

namespace octavo::sm90 {

/// A position in the ring. A barrier `full` is waited for with phase(); a barrier `empty` by the
/// producer with empty_phase(), which lets the first round pass.
template <int kStages>
struct RingState {
  static_assert((kStages & (kStages - 1)) == 0, "stage and phase are bits of one counter");
  std::uint32_t count = 0;

  __device__ int stage() const { return static_cast<int>(count % kStages); }
  __device__ std::uint32_t phase() const { return count / kStages & 1; }
  __device__ std::uint32_t empty_phase() const { return phase() ^ 1; }
  __device__ void advance() { ++count; }
};

}  // namespace octavo::sm90
