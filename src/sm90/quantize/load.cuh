// SPDX-License-Identifier: Apache-2.0
// Eight channels of a row from global memory to FP32 registers. All loads of a tile are issued
// before the first is used: 32 KB in flight a thread block.
#pragma once

#include <cuda_fp16.h>

#include "sm90/quantize/row_tile.cuh"

namespace octavo::sm90 {

/// Eight elements of kBytes bytes as they lie in memory.
template <int kBytes>
struct Chunk {
  static constexpr int kWords = kChannels * kBytes / 4;
  std::uint32_t word[kWords];
};

template <int kBytes>
__device__ Chunk<kBytes> load_chunk(const void* x, bool wide) {
  Chunk<kBytes> chunk;
  if (wide) {
#pragma unroll
    for (int w = 0; w < Chunk<kBytes>::kWords; w += 4) {
      const uint4 v = __ldcs(static_cast<const uint4*>(x) + w / 4);
      chunk.word[w] = v.x;
      chunk.word[w + 1] = v.y;
      chunk.word[w + 2] = v.z;
      chunk.word[w + 3] = v.w;
    }
  } else if constexpr (kBytes == 2) {
    const auto* half = static_cast<const std::uint16_t*>(x);
#pragma unroll
    for (int w = 0; w < Chunk<2>::kWords; ++w) {
      chunk.word[w] = half[2 * w] | static_cast<std::uint32_t>(half[2 * w + 1]) << 16;
    }
  } else {
#pragma unroll
    for (int w = 0; w < Chunk<4>::kWords; ++w)
      chunk.word[w] = static_cast<const std::uint32_t*>(x)[w];
  }
  return chunk;
}

__device__ inline float half_bits_to_float(std::uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

template <int kBytes>
__device__ void unpack(const Chunk<kBytes>& chunk, DType dtype, float (&x)[kChannels]) {
  if constexpr (kBytes == 4) {
#pragma unroll
    for (int j = 0; j < kChannels; ++j) x[j] = __uint_as_float(chunk.word[j]);
  } else if (dtype == DType::bf16) {
#pragma unroll
    for (int j = 0; j < kChannels; j += 2) {
      x[j] = __uint_as_float(chunk.word[j / 2] << 16);
      x[j + 1] = __uint_as_float(chunk.word[j / 2] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kChannels; j += 2) {
      x[j] = half_bits_to_float(chunk.word[j / 2] & 0xffffu);
      x[j + 1] = half_bits_to_float(chunk.word[j / 2] >> 16);
    }
  }
}

/// Rows [first, first + 128) of (b, h); rows from `valid` on and channels from d on are 0.
template <int kBytes, typename Order>
__device__ void load_tile(const OperandArgs& operand, int b, int h, int first, int valid,
                          int channel, Order order, Tile& tile) {
  const int row = first + order.base;
  const auto* base =
      static_cast<const char*>(operand.x) +
      (b * operand.stride_b + row * operand.stride_s + h * operand.stride_h + channel) * kBytes;
  Chunk<kBytes> chunk[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    if (row + order.delta(i) < valid && channel < operand.d) {
      chunk[i] =
          load_chunk<kBytes>(base + order.delta(i) * operand.stride_s * kBytes, operand.wide_loads);
    } else {
      chunk[i] = {};
    }
  }
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) unpack<kBytes>(chunk[i], operand.dtype, tile.x[i]);
}

}  // namespace octavo::sm90
