// SPDX-License-Identifier: Apache-2.0
// Stage `amax`: the largest finite magnitude of what a thread, a row or a block of rows holds; for
// INT8 codes NaN where anything is not finite.
#pragma once

#include "sm90/ptx/math.cuh"
#include "sm90/ptx/reduce.cuh"
#include "sm90/quantize/row_tile.cuh"

namespace octavo::sm90 {

inline constexpr float kInfinity = __builtin_huge_valf();
inline constexpr float kNan = __builtin_nanf("");  // orders above all others by its bits

template <int kCount>
__device__ float magnitude(const float (&x)[kCount]) {
  float a = 0;
#pragma unroll
  for (int j = 0; j < kCount; ++j) a = ptx::max_nan(a, fabsf(x[j]));
  return a;
}

template <int kCount>
__device__ float largest(const float (&a)[kCount]) {
  float most = a[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i) most = ptx::max_nan(most, a[i]);
  return most;
}

/// The amax of each of a thread's rows. A first look without regard to what is not finite is enough
/// for almost every thread; whether there is such a thing is the result.
template <int kRows, int kCount>
__device__ bool rows_amax(const float (&x)[kRows][kCount], DType format, float (&a)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) a[i] = magnitude(x[i]);
  if (largest(a) < kInfinity) return false;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (format == DType::i8) {
      a[i] = a[i] < kInfinity ? a[i] : kNan;
      continue;
    }
    a[i] = 0;
#pragma unroll
    for (float y : x[i]) a[i] = fmaxf(a[i], fabsf(y) == kInfinity ? 0 : fabsf(y));
  }
  return true;
}

/// Largest of a value over the threads of a row of Q or K, kNear .. kFar lanes apart.
template <int kNear, int kFar>
__device__ float lanes_max(float a) {
#pragma unroll
  for (int distance = kNear; distance <= kFar; distance *= 2) {
    a = ptx::max_nan(a, __shfl_xor_sync(0xffffffffu, a, distance));
  }
  return a;
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
