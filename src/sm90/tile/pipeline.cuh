// SPDX-License-Identifier: Apache-2.0
// Where a warp stands in a ring of shared-memory stages. A barrier `full` is waited for with
// phase(), a barrier `empty` by the producer with empty_phase(), which lets the first round pass.
#pragma once

#include <cstdint>

namespace octavo::sm90 {

/// Stage and round apart: the compiler keeps both in uniform registers where it can.
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

/// One counter: a register less where registers are short, but the stage is no uniform register.
template <int kStages>
struct CountedRingState {
  static_assert((kStages & (kStages - 1)) == 0, "stage and phase are bits of the counter");
  std::uint32_t count = 0;

  __device__ int stage() const { return static_cast<int>(count % kStages); }
  __device__ std::uint32_t phase() const { return count / kStages & 1; }
  __device__ void advance() { ++count; }
};

}  // namespace octavo::sm90
