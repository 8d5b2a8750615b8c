// SPDX-License-Identifier: Apache-2.0
// Stage `rotate`: x <- (x s) H (core/hadamard.h), s = +-1 / sqrt(n). With units l, l + 4, .. in
// thread l of a row, distances 8 and 16 are between threads; all others between registers.
#pragma once

#include "sm90/quantize/load.cuh"

namespace octavo::sm90 {

/// A thread's rows of Q or K in FP32.
template <int kD>
struct Rows {
  static constexpr int kCount = TileShape<kD>::kRows, kUnits = TileShape<kD>::kRowUnits;
  float x[kCount][kUnits][kChannels];

  /// The same values, unit after unit and row after row.
  __device__ auto& units() { return reinterpret_cast<float(&)[kCount * kUnits][kChannels]>(x); }
  __device__ auto& flat() { return reinterpret_cast<float(&)[kCount][kUnits * kChannels]>(x); }
};

/// +-1 / sqrt(n) of every channel. All threads call; a barrier must follow.
template <int kD>
__device__ void init_signs(const SignBits& signs, float* storage) {
  constexpr float kNorm = hadamard_norm(hadamard_size(kD));
  for (int c = static_cast<int>(threadIdx.x); c < kD; c += TileShape<kD>::kThreads) {
    storage[c] = signs.negative(c) ? -kNorm : kNorm;
  }
}

/// Eight neighbouring floats that start on a 16-byte boundary.
__device__ inline void load8(const float* from, float (&x)[kChannels]) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
  x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

template <int kD>
__device__ void apply_signs(const RowPlace<kD>& at, const float* signs, Rows<kD>& rows) {
#pragma unroll
  for (int k = 0; k < Rows<kD>::kUnits; ++k) {
    float s[kChannels];
    load8(signs + at.channel(0) + RowPlace<kD>::channel_step(k), s);
#pragma unroll
    for (int i = 0; i < Rows<kD>::kCount; ++i) {
#pragma unroll
      for (int j = 0; j < kChannels; ++j) rows.x[i][k][j] = __fmul_rn(rows.x[i][k][j], s[j]);
    }
  }
}

__device__ inline void butterfly(float& a, float& b) {
  const float sum = __fadd_rn(a, b);
  b = __fsub_rn(a, b);
  a = sum;
}

/// Butterflies with the thread at `distance` of the row: a + b for the lower, a - b for the upper
/// one, both as own * +-1 + other.
template <int kD>
__device__ void rotate_across(int l, int distance, float (&x)[Rows<kD>::kUnits][kChannels]) {
  const float sign = (l & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
  for (int k = 0; k < Rows<kD>::kUnits; ++k) {
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      x[k][j] = fmaf(x[k][j], sign, __shfl_xor_sync(0xffffffffu, x[k][j], distance));
    }
  }
}

template <int kD>
__device__ void rotate_rows(int l, Rows<kD>& rows) {
#pragma unroll
  for (auto& x : rows.x) {
    rotate_across<kD>(l, 1, x);  // channels 8 apart
    rotate_across<kD>(l, 2, x);  // 16
#pragma unroll
    for (int h = 1; h < hadamard_size(kD) / (kChannels * kThreadsPerRow); h *= 2) {
#pragma unroll
      for (int i = 0; i < Rows<kD>::kUnits * kChannels; ++i) {
        const int k = i / kChannels, j = i % kChannels;
        if ((k & h) == 0) butterfly(x[k][j], x[k + h][j]);
      }
    }
#pragma unroll
    for (int h = 1; h < kChannels; h *= 2) {
#pragma unroll
      for (int i = 0; i < Rows<kD>::kUnits * kChannels; ++i) {
        const int k = i / kChannels, j = i % kChannels;
        if ((j & h) == 0) butterfly(x[k][j], x[k][j + h]);
      }
    }
  }
}

}  // namespace octavo::sm90
