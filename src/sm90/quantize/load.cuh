// SPDX-License-Identifier: Apache-2.0
// A thread's units of a tile from global memory to FP32 registers.
//
// Where rows are aligned 2-byte elements, each warp copies its units of the next tile into shared
// memory of its own while it works on this one (cp.async): no other warp reads them, so no barrier
// is needed, and no register is held meanwhile.
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

/// The units that `Place` gives each thread of a tile, head after head; those of rows past the
/// valid ones and of channels past d are 0.
template <int kD, int kBytes, typename Place>
class Loader {
 public:
  static constexpr int kCount = Place::kUnits;
  using Units = Unit<kBytes>[kCount];
  using Copy = typename Place::Copy;

  __device__ Loader(const OperandArgs& operand, const RowBlock& rows, uint4* slots)
      : operand_(operand), rows_(rows.valid), slots_(slots) {
    const Copy copy(static_cast<int>(threadIdx.x));
    from_ = element<kBytes>(operand, rows, copy.first_row(), copy.first_channel());
  }

  __device__ void next_head() { from_ += operand_.stride_h * kBytes; }

  /// Starts copying a tile, where copies can be.
  __device__ void start() {
    if (!copies()) return;
    if constexpr (!Copy::kOwn) __syncwarp();                      // the tile before has been read
    const Copy copy(ptx::opaque(static_cast<int>(threadIdx.x)));  // not kept across tiles
    uint4* to = slots_ + copy.thread;
    if (whole()) {
      start_whole(to, std::make_integer_sequence<int, kCount>());
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        ptx::cp_async_16(to + i * TileShape<kD>::kThreads,
                         row_address(Copy::row_step(i)) + Copy::channel_step(i) * kBytes,
                         inside(copy, i));
      }
    }
    ptx::cp_async_commit();
  }

  /// The units of tile `rows`, the one that was started.
  __device__ void finish(const RowBlock& rows, Units& units) {
    if constexpr (kBytes == 2) {
      if (copies()) {
        ptx::cp_async_wait<0>();
        if constexpr (!Copy::kOwn) __syncwarp();
        const uint4* from = slots_ + Place(ptx::opaque(static_cast<int>(threadIdx.x))).first_slot();
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          const uint4 v = from[Place::slot_step(i)];
          units[i].word[0] = v.x, units[i].word[1] = v.y;
          units[i].word[2] = v.z, units[i].word[3] = v.w;
        }
        return;
      }
    }
    const Place at(ptx::opaque(static_cast<int>(threadIdx.x)));
    const char* from = element<kBytes>(operand_, rows, at.first_row(), at.first_channel());
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      units[i] = {};
      if (!inside(at, i)) continue;
      units[i] = load_unit<kBytes>(
          from + (Place::row_step(i) * operand_.stride_s + Place::channel_step(i)) * kBytes,
          operand_.wide_loads);
    }
  }

 private:
  /// Whether tiles go through the slots.
  __device__ bool copies() const { return kBytes == 2 && ptx::opaque(operand_.wide_loads) != 0; }
  /// Whether every unit of every thread is inside.
  __device__ bool whole() const {
    return Place::kCovers && ptx::opaque(rows_) >= kTileRows && operand_.d == kD;
  }
  template <typename At>
  __device__ bool inside(const At& at, int i) const {
    return at.first_row() + At::row_step(i) < rows_ &&
           at.first_channel() + At::channel_step(i) < operand_.d;
  }
  __device__ const char* row_address(int step) const {
    return from_ + step * operand_.stride_s * kBytes;
  }
  template <int... i>
  __device__ void start_whole(uint4* to, std::integer_sequence<int, i...>) {
    (ptx::cp_async_16<Copy::channel_step(i) * kBytes,
                      i * TileShape<kD>::kThreads* static_cast<int>(sizeof(uint4))>(
         to, row_address(Copy::row_step(i))),
     ...);
  }

  const OperandArgs& operand_;
  const int rows_;    // valid ones of the tile
  const char* from_;  // the first copy
  uint4* slots_;
};

}  // namespace octavo::sm90
