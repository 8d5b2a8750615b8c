// SPDX-License-Identifier: Apache-2.0
// Eight channels of a row from global memory to FP32 registers. All loads of a tile are issued
// before the first is used: 32 KB in flight a thread block.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "sm90/ptx/cp_async.cuh"
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

/// A thread's eight rows as they lie in memory.
template <int kBytes>
struct Chunks {
  Chunk<kBytes> row[kRowsPerThread];
};

/// Starts loading rows [first, first + 128) of (b, h); rows from `valid` on and channels from d on
/// are 0.
template <int kBytes, typename Order>
__device__ void load_chunks(const OperandArgs& operand, int b, int h, int first, int valid,
                            int channel, Order order, Chunks<kBytes>& chunks) {
  const int row = first + order.base;
  const auto* base =
      static_cast<const char*>(operand.x) +
      (b * operand.stride_b + row * operand.stride_s + h * operand.stride_h + channel) * kBytes;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    if (row + order.delta(i) < valid && channel < operand.d) {
      chunks.row[i] =
          load_chunk<kBytes>(base + order.delta(i) * operand.stride_s * kBytes, operand.wide_loads);
    } else {
      chunks.row[i] = {};
    }
  }
}

template <int kBytes>
__device__ void unpack(const Chunks<kBytes>& chunks, DType dtype, Tile& tile) {
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) unpack<kBytes>(chunks.row[i], dtype, tile.x[i]);
}

/// Rows of Q or K as they lie in memory. The padding moves the rows that a warp reads together to
/// banks of their own.
template <int kD, int kBytes>
struct RawRows {
  static constexpr int kUnits = kD * kBytes / 16;
  static constexpr int kPitch = kD * kBytes + 8 * kBytes;
  alignas(16) char row[kTileRows][kPitch];
};

/// Starts copying rows [first, first + 128) of (b, h); zeros from `valid` on and from channel d on.
/// Lane l of a row copies units l, l + kLanes, ..; a thread's rows are 16 apart.
template <int kD, int kBytes>
__device__ void copy_rows(const OperandArgs& operand, int b, int h, int first, int valid,
                          const Place<kD>& at, RawRows<kD, kBytes>& raw) {
  constexpr int kUnits = RawRows<kD, kBytes>::kUnits, kElements = 16 / kBytes;  // of a unit
  const std::int64_t row_bytes = operand.stride_s * kBytes;
  const char* row_base = static_cast<const char*>(operand.x) +
                         (b * operand.stride_b + h * operand.stride_h) * kBytes +
                         (first + at.row_lane) * row_bytes;
#pragma unroll
  for (int unit0 = 0; unit0 < kUnits; unit0 += TileShape<kD>::kLanes) {
    const int unit = unit0 + at.lane;
    if (unit >= kUnits) break;
    const bool has_channels = unit * kElements < operand.d;
    const char* from = row_base + unit * 16;
    char* to = raw.row[at.row_lane] + unit * 16;
    if (operand.wide_loads) {
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) {
        const bool inside = has_channels && first + at.row_lane + i * kRowLanes < valid;
        ptx::cp_async_16(to + i * kRowLanes * RawRows<kD, kBytes>::kPitch,
                         inside ? from : static_cast<const char*>(operand.x), inside);
        from += kRowLanes * row_bytes;
      }
    } else {
      using Element = std::conditional_t<kBytes == 2, std::uint16_t, std::uint32_t>;
#pragma unroll 1
      for (int i = 0; i < kRowsPerThread; ++i) {
        const bool inside = has_channels && first + at.row_lane + i * kRowLanes < valid;
        for (int j = 0; j < kElements; ++j) {
          reinterpret_cast<Element*>(to)[j] =
              inside ? reinterpret_cast<const Element*>(from)[j] : Element{0};
        }
        to += kRowLanes * RawRows<kD, kBytes>::kPitch;
        from += kRowLanes * row_bytes;
      }
    }
  }
}

/// A thread's eight rows from shared memory, by `order`.
template <int kD, int kBytes, typename Order>
__device__ void read_rows(const RawRows<kD, kBytes>& raw, Order order, int channel, DType dtype,
                          Tile& tile) {
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    Chunk<kBytes> chunk;
    const auto* from =
        reinterpret_cast<const uint4*>(raw.row[order.base + Order::delta(i)] + channel * kBytes);
#pragma unroll
    for (int w = 0; w < Chunk<kBytes>::kWords; w += 4) {
      const uint4 v = from[w / 4];
      chunk.word[w] = v.x;
      chunk.word[w + 1] = v.y;
      chunk.word[w + 2] = v.z;
      chunk.word[w + 3] = v.w;
    }
    unpack<kBytes>(chunk, dtype, tile.x[i]);
  }
}

/// How 2-byte elements become FP32; a type, so that the choice is made once a tile.
struct FromBf16 {
  static __device__ float2 pair(std::uint32_t word) {
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
  }
};
struct FromF16 {
  static __device__ float2 pair(std::uint32_t word) {
    return {half_bits_to_float(word & 0xffffu), half_bits_to_float(word >> 16)};
  }
};

/// Two neighbouring channels from shared memory.
template <int kBytes, typename From>
__device__ float2 load_pair(const char* raw) {
  if constexpr (kBytes == 4) return *reinterpret_cast<const float2*>(raw);
  return From::pair(*reinterpret_cast<const std::uint32_t*>(raw));
}

}  // namespace octavo::sm90
