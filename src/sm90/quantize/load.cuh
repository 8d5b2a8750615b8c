// SPDX-License-Identifier: Apache-2.0
// A thread's units of a tile from global memory to FP32 registers.
//
// Where rows are aligned 2-byte elements, each thread copies the next tile's units into shared
// memory of its own while it works on this one (cp.async): nobody else reads them, so no barrier is
// needed, and no register is held meanwhile.
#pragma once

#include <cuda_fp16.h>

#include <utility>

#include "sm90/ptx/cp_async.cuh"
#include "sm90/ptx/opaque.cuh"
#include "sm90/quantize/row_tile.cuh"

namespace octavo::sm90 {

/// Eight elements of kBytes bytes as they lie in memory.
template <int kBytes>
struct Unit {
  static constexpr int kWords = kChannels * kBytes / 4;
  std::uint32_t word[kWords];
};

template <int kBytes>
__device__ Unit<kBytes> load_unit(const char* x, bool wide) {
  Unit<kBytes> unit;
  if (wide) {
#pragma unroll
    for (int w = 0; w < Unit<kBytes>::kWords; w += 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(x + 4 * w);
      unit.word[w] = v.x, unit.word[w + 1] = v.y, unit.word[w + 2] = v.z, unit.word[w + 3] = v.w;
    }
  } else {
#pragma unroll
    for (int w = 0; w < Unit<kBytes>::kWords; ++w) {
      if constexpr (kBytes == 2) {
        const auto* half = reinterpret_cast<const std::uint16_t*>(x) + 2 * w;
        unit.word[w] = half[0] | static_cast<std::uint32_t>(half[1]) << 16;
      } else {
        unit.word[w] = reinterpret_cast<const std::uint32_t*>(x)[w];
      }
    }
  }
  return unit;
}

__device__ inline float half_bits_to_float(std::uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/// FP32 of kCount units, the type looked at once.
template <int kBytes, int kCount>
__device__ void unpack(const Unit<kBytes> (&unit)[kCount], DType dtype,
                       float (&x)[kCount][kChannels]) {
  constexpr int kWords = Unit<kBytes>::kWords;
  if constexpr (kBytes == 4) {
#pragma unroll
    for (int i = 0; i < kCount * kWords; ++i) {
      x[i / kWords][i % kWords] = __uint_as_float(unit[i / kWords].word[i % kWords]);
    }
  } else if (dtype == DType::bf16) {
#pragma unroll
    for (int i = 0; i < kCount * kWords; ++i) {
      const std::uint32_t word = unit[i / kWords].word[i % kWords];
      x[i / kWords][2 * (i % kWords)] = __uint_as_float(word << 16);
      x[i / kWords][2 * (i % kWords) + 1] = __uint_as_float(word & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount * kWords; ++i) {
      const std::uint32_t word = unit[i / kWords].word[i % kWords];
      x[i / kWords][2 * (i % kWords)] = half_bits_to_float(word & 0xffffu);
      x[i / kWords][2 * (i % kWords) + 1] = half_bits_to_float(word >> 16);
    }
  }
}

template <int kBytes>
__device__ const char* element(const OperandArgs& operand, const RowBlock& rows, int row,
                               int channel) {
  return static_cast<const char*>(operand.x) +
         (rows.b * operand.stride_b + (rows.first + row) * operand.stride_s +
          rows.h * operand.stride_h + channel) *
             kBytes;
}

/// The units that `Place` gives each thread of a tile, head after head; those of rows past the valid
/// ones and of channels past d are 0.
template <int kD, int kBytes, typename Place>
class Loader {
 public:
  static constexpr int kCount = Place::kUnits;
  using Units = Unit<kBytes>[kCount];

  __device__ Loader(const OperandArgs& operand, const RowBlock& rows, uint4* slots)
      : operand_(operand),
        rows_(rows.valid - rows.first),
        whole_(rows_ >= kTileRows && operand.d == kD && Place::kCovers),
        from_(element<kBytes>(operand, rows, Place().first_row(), Place().first_channel())),
        slot_(slots + threadIdx.x) {}

  __device__ void next_head() { from_ += operand_.stride_h * kBytes; }

  /// Starts copying a tile, where copies can be.
  __device__ void start() {
    if constexpr (kBytes == 2) {
      if (!operand_.wide_loads) return;
      if (whole_) {
        start_whole(std::make_integer_sequence<int, kCount>());
      } else {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          ptx::cp_async_16(slot_ + i * TileShape<kD>::kThreads, address(i), inside(i));
        }
      }
      ptx::cp_async_commit();
    }
  }

  /// The units of the tile that was started.
  __device__ void finish(Units& units) {
    if constexpr (kBytes == 2) {
      if (operand_.wide_loads) {
        ptx::cp_async_wait<0>();
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          const uint4 v = slot_[i * TileShape<kD>::kThreads];
          units[i].word[0] = v.x, units[i].word[1] = v.y;
          units[i].word[2] = v.z, units[i].word[3] = v.w;
        }
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      units[i] = {};
      if (inside(i)) units[i] = load_unit<kBytes>(address(i), operand_.wide_loads);
    }
  }

 private:
  __device__ bool inside(int i) const {
    const Place at(ptx::opaque(static_cast<int>(threadIdx.x)));  // not kept across tiles
    return at.first_row() + Place::row_step(i) < rows_ &&
           at.first_channel() + Place::channel_step(i) < operand_.d;
  }
  __device__ const char* row_address(int i) const {
    return from_ + Place::row_step(i) * operand_.stride_s * kBytes;
  }
  __device__ const char* address(int i) const {
    return row_address(i) + Place::channel_step(i) * kBytes;
  }
  template <int... i>
  __device__ void start_whole(std::integer_sequence<int, i...>) {
    (ptx::cp_async_16<Place::channel_step(i) * kBytes,
                      i * TileShape<kD>::kThreads * static_cast<int>(sizeof(uint4))>(
         slot_, row_address(i)),
     ...);
  }

  const OperandArgs& operand_;
  const int rows_;    // valid ones of the tile; may be negative
  const bool whole_;  // every unit of every thread is inside
  const char* from_;  // the first unit
  uint4* slot_;
};

}  // namespace octavo::sm90
