// SPDX-License-Identifier: Apache-2.0
// CUDA C++ as far as the quantiser uses it, in C++. Compiled with this file included first and with
// include/ before src/, kernels find their PTX instructions here.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "simt.h"

#undef __device__
#undef __global__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#define __device__
#define __global__
#define __host__
#define __shared__ static  // blocks run one after another
#define __launch_bounds__(...)
#define __grid_constant__
#define __builtin_assume(condition) static_cast<void>(0)

#define threadIdx octavo::simt::thread_index
#define blockIdx octavo::simt::block_index
#define blockDim octavo::simt::block_extent

using std::isfinite, std::max, std::min;

inline std::uint32_t __float_as_uint(float x) { return std::bit_cast<std::uint32_t>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(std::uint32_t x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
/// NaN is the GPU's.
inline float __fmaf_rn(float a, float b, float c) {
  const float x = std::fma(a, b, c);
  return x == x ? x : __uint_as_float(0x7fffffffu);
}

inline std::uint32_t __byte_perm(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(high) << 32 | low;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t from = selector >> 4 * i & 7;
    result |= (static_cast<std::uint32_t>(bytes >> 8 * from) & 0xffu) << 8 * i;
  }
  return result;
}

inline int atomicMax(int* at, int value) {
  const int before = *at;
  *at = std::max(before, value);
  return before;
}

inline void __syncthreads() { octavo::simt::sync_block(); }
inline void __syncwarp() { octavo::simt::meet(octavo::simt::Meeting::syncwarp, 0, {}); }
inline float __shfl_xor_sync(std::uint32_t, float x, int distance) {
  using octavo::simt::Meeting;
  return __uint_as_float(
      octavo::simt::meet(Meeting::shuffle_xor, distance, {__float_as_uint(x)})[0]);
}
