// SPDX-License-Identifier: Apache-2.0
// Stage `amax`: the largest finite magnitude of what a thread, a row or a block of rows holds.
#pragma once

#include "sm90/ptx/reduce.cuh"
#include "sm90/quantize/row_tile.cuh"

namespace octavo::sm90 {

inline constexpr float kInfinity = __builtin_huge_valf();

template <int kCount>
__device__ float magnitude(const float (&x)[kCount]) {
  float a = 0;
#pragma unroll
  for (int j = 0; j < kCount; ++j) a = fmaxf(a, fabsf(x[j]));
  return a;
}

template <int kCount>
__device__ float largest(const float (&a)[kCount]) {
  float most = a[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i) most = fmaxf(most, a[i]);
  return most;
}

/// Largest finite magnitude of each of a thread's rows. Infinities become NaN, which fmaxf passes
/// over and the cast turns into the NaN code; a first look without that is enough for almost every
/// thread.
template <int kRows, int kCount>
__device__ void finite_amax(float (&x)[kRows][kCount], float (&a)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) a[i] = magnitude(x[i]);
  if (largest(a) != kInfinity) return;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (float& y : x[i]) {
      if (fabsf(y) == kInfinity) y = __int_as_float(0x7fffffff);
    }
    a[i] = magnitude(x[i]);
  }
}

/// Largest of a value over the four threads of a row of Q or K.
__device__ inline float row_max(float a) {
  a = fmaxf(a, __shfl_xor_sync(0xffffffffu, a, 1));
  return fmaxf(a, __shfl_xor_sync(0xffffffffu, a, 2));
}

/// Largest of a value over each `kGroup` neighbouring warps. All threads call. `storage` holds one
/// float a warp and must not be what the call before used: then one barrier is enough.
template <int kGroup>
__device__ float warps_max(float a, float* storage, int thread) {
  const int warp = thread / 32, lane = thread % 32;
  a = ptx::redux_max(a);
  if (lane == 0) storage[warp] = a;
  __syncthreads();
  return ptx::redux_max(storage[warp / kGroup * kGroup + lane % kGroup]);
}

}  // namespace octavo::sm90
