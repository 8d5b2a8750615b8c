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

/// Neighbouring elements of kBytes bytes as they lie in memory.
template <int kBytes, int kPiece = kChannels>
struct Unit {
  static constexpr int kWords = kPiece * kBytes / 4;
  std::uint32_t word[kWords];
};

/// Where the unit is aligned.
template <int kBytes, int kPiece>
__device__ void load_wide(const void* x, Unit<kBytes, kPiece>& unit) {
  if constexpr (Unit<kBytes, kPiece>::kWords == 2) {
    const uint2 v = *static_cast<const uint2*>(x);
    unit.word[0] = v.x, unit.word[1] = v.y;
  } else {
#pragma unroll
    for (int w = 0; w < Unit<kBytes, kPiece>::kWords; w += 4) {
      const uint4 v = static_cast<const uint4*>(x)[w / 4];
      unit.word[w] = v.x, unit.word[w + 1] = v.y, unit.word[w + 2] = v.z, unit.word[w + 3] = v.w;
    }
  }
}

template <int kBytes, int kPiece = kChannels>
__device__ Unit<kBytes, kPiece> load_unit(const char* x, bool wide) {
  Unit<kBytes, kPiece> unit;
  if (wide) {
    load_wide(x, unit);
  } else {
#pragma unroll
    for (int w = 0; w < Unit<kBytes, kPiece>::kWords; ++w) {
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
template <int kBytes, int kPiece, int kCount>
__device__ void unpack(const Unit<kBytes, kPiece> (&unit)[kCount], DType dtype,
                       float (&x)[kCount][kPiece]) {
  constexpr int kWords = Unit<kBytes, kPiece>::kWords;
  if constexpr (kBytes == 4) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < kWords; ++j) x[i][j] = __uint_as_float(unit[i].word[j]);
    }
  } else if (dtype == DType::bf16) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        x[i][2 * w] = __uint_as_float(unit[i].word[w] << 16);
        x[i][2 * w + 1] = __uint_as_float(unit[i].word[w] & 0xffff0000u);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        x[i][2 * w] = half_bits_to_float(unit[i].word[w] & 0xffffu);
        x[i][2 * w + 1] = half_bits_to_float(unit[i].word[w] >> 16);
      }
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

/// The units that `Place` gives each thread of a tile, head after head, copied as `Copy` says;
/// those of rows past the valid ones and of channels past d are 0. kKeeps: there are registers for
/// where copies go on.
template <int kD, int kBytes, typename Place, typename Copy, bool kKeeps>
class Loader {
 public:
  static constexpr int kCopies = Copy::kUnits;
  using Piece = Unit<kBytes, Place::kPiece>;
  using Units = Piece[Place::kUnits];

  __device__ Loader(const OperandArgs& operand, const RowBlock& rows, char* slots)
      : operand_(operand),
        rows_(rows.valid),
        slots_(slots),
        kept_(operand, rows, Copy(kKeeps ? opaque_thread() : 0)) {}

  /// Starts copying tile `rows`, the next head's, where copies can be. The one before must have
  /// been read.
  __device__ void start(const RowBlock& rows) {
    if (!copies()) return;
    const Copy copy(opaque_thread());
    const Start at = kKeeps ? kept_ : Start(operand_, rows, copy);
    if constexpr (kKeeps) kept_.from += operand_.stride_h * kBytes;
    if (whole()) {
      start_whole(at, std::make_integer_sequence<int, kCopies>());
    } else {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        ptx::cp_async_16(slots_ + (at.slot ^ Copy::slot_flip(i)) + Copy::slot_step(i),
                         row_address(at, i) + Copy::channel_step(i) * kBytes, inside(copy, i));
      }
    }
    ptx::cp_async_commit();
  }

  /// The units of tile `rows`, the one that was started; its copies have arrived.
  __device__ void finish(const RowBlock& rows, const Place& at, Units& units) {
    if (copies()) {
#pragma unroll
      for (int i = 0; i < Place::kUnits; ++i) load_wide(slots_ + at.slot(i), units[i]);
      return;
    }
    const char* from = element<kBytes>(operand_, rows, 0, 0);
#pragma unroll
    for (int i = 0; i < Place::kUnits; ++i) {
      units[i] = {};
      if (at.row(i) >= rows_ || at.channel(i) >= operand_.d) continue;
      units[i] = load_unit<kBytes, Place::kPiece>(
          from + (at.row(i) * operand_.stride_s + at.channel(i)) * kBytes, operand_.wide_loads);
    }
  }

  /// Waits for this thread's copies, and where a warp's threads copy for one another for theirs.
  static __device__ void wait() {
    ptx::cp_async_wait<0>();
    if constexpr (!Copy::kOwn) __syncwarp();
  }

 private:
  /// Slot and source of this thread's first copy. Offsets in a tile have 32 bits: operand_args().
  struct Start {
    int slot;
    const char* from;

    __device__ Start(const OperandArgs& operand, const RowBlock& rows, const Copy& copy)
        : slot(copy.first_slot()) {
      const int stride = static_cast<int>(operand.stride_s);
      const int offset = copy.first_row() * stride + copy.first_channel();
      from = element<kBytes>(operand, rows, 0, 0) + offset * kBytes;
    }
  };

  /// Whether tiles go through the slots.
  __device__ bool copies() const { return kBytes == 2 && ptx::opaque(operand_.wide_loads) != 0; }
  /// Whether every unit of every thread is inside.
  __device__ bool whole() const {
    return Place::kCovers && ptx::opaque(rows_) >= kTileRows && operand_.d == kD;
  }
  __device__ bool inside(const Copy& copy, int i) const {
    return copy.first_row() + Copy::row_step(i) < rows_ &&
           copy.first_channel() + Copy::channel_step(i) < operand_.d;
  }
  __device__ const char* row_address(const Start& at, int i) const {
    return at.from + Copy::row_step(i) * operand_.stride_s * kBytes;
  }
  template <int... i>
  __device__ void start_whole(const Start& at, std::integer_sequence<int, i...>) {
    (ptx::cp_async_16<Copy::channel_step(i) * kBytes, Copy::slot_step(i)>(
         slots_ + (at.slot ^ Copy::slot_flip(i)), row_address(at, i)),
     ...);
  }

  const OperandArgs& operand_;
  const int rows_;  // valid ones of the tile
  char* slots_;
  Start kept_;
};

}  // namespace octavo::sm90
