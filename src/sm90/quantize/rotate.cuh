// SPDX-License-Identifier: Apache-2.0
// Stage `rotate`: x <- (x s) H (core/hadamard.h), s = +-1 / sqrt(n), in two halves by way of shared
// memory, so that every butterfly is between two registers of one thread:
//
//   high:  four threads a row, thread l with channels 8 hi + 2 l + {0, 1} for all hi; distances
//          8, 16, .., n / 2. The stages before, which work on channels or pairs, happen here too.
//   low:   kLanes threads a row, each with eight neighbouring channels; distances 1, 2, 4.
//
// A warp does eight rows at a time. Shuffles would take four instructions an element at d 128,
// shared memory takes less than one.
#pragma once

#include "sm90/quantize/load.cuh"

namespace octavo::sm90 {

inline constexpr int kRowsAtOnce = 8;
inline constexpr int kThreadsPerRow = 4;  // of the high half

/// Rows of a warp between the halves. The padding moves neighbouring rows by 8 banks.
template <int kD>
struct ExchangeRows {
  alignas(16) float row[kRowsAtOnce][kD + 8];
};

/// What a pair of channels needs of the call.
struct alignas(16) PairConstants {
  float mean[2];
  float sign[2];  // +-1 / sqrt(n); 1 without rotation
};

/// The channels of a thread in the high half.
template <int kD>
struct Pairs {
  static constexpr int kCount = kD / kChannels;
  float x[kCount][2];
};

template <int kD>
__device__ void rotate_high(Pairs<kD>& y) {
  constexpr int kGroup = hadamard_size(kD) / kChannels;  // pairs of a Hadamard block
#pragma unroll
  for (int distance = 1; distance < kGroup; distance *= 2) {
#pragma unroll
    for (int i = 0; i < Pairs<kD>::kCount; ++i) {
      if (i & distance) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float a = y.x[i][j], b = y.x[i + distance][j];
        y.x[i][j] = __fadd_rn(a, b);
        y.x[i + distance][j] = __fsub_rn(a, b);
      }
    }
  }
}

__device__ inline void rotate_low(float (&x)[kChannels]) {
#pragma unroll
  for (int h = 1; h < kChannels; h *= 2) {
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      if (j & h) continue;
      const float a = x[j], b = x[j + h];
      x[j] = __fadd_rn(a, b);
      x[j + h] = __fsub_rn(a, b);
    }
  }
}

}  // namespace octavo::sm90
