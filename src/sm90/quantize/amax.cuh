// SPDX-License-Identifier: Apache-2.0
// Stage `amax`: the largest finite magnitude of a row, a block, or what a thread holds.
#pragma once

#include "sm90/quantize/row_tile.cuh"

namespace octavo::sm90 {

inline constexpr float kInfinity = __builtin_huge_valf();

/// Largest magnitude of eight values. Infinities become NaN, which fmaxf passes over and the cast
/// turns into the NaN code; a first look without that test is enough for almost every row.
__device__ inline float row_amax(float (&x)[kChannels]) {
  float a = 0;
#pragma unroll
  for (int j = 0; j < kChannels; ++j) a = fmaxf(a, fabsf(x[j]));
  if (a == kInfinity) {
    a = 0;
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      if (fabsf(x[j]) == kInfinity) x[j] = __int_as_float(0x7fffffff);
      a = fmaxf(a, fabsf(x[j]));
    }
  }
  return a;
}

/// Largest of a value over the lanes of a row.
template <int kD>
__device__ float lanes_max(float a) {
#pragma unroll
  for (int distance = TileShape<kD>::kLanes / 2; distance > 0; distance /= 2) {
    a = fmaxf(a, __shfl_xor_sync(0xffffffffu, a, distance));
  }
  return a;
}

__device__ inline float largest(const float (&a)[kRowsPerThread]) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) most = fmaxf(most, a[i]);
  return most;
}

/// Largest of a value over warps [first, first + count). `storage` holds one float a warp of the
/// thread block, all of whose threads call.
__device__ inline float warps_max(float a, float* storage, int first, int count) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    a = fmaxf(a, __shfl_xor_sync(0xffffffffu, a, distance));
  }
  if (threadIdx.x % 32 == 0) storage[threadIdx.x / 32] = a;
  __syncthreads();
  for (int w = first; w < first + count; ++w) a = fmaxf(a, storage[w]);
  return a;
}

}  // namespace octavo::sm90
