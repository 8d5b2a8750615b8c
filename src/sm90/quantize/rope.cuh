// SPDX-License-Identifier: Apache-2.0
// Stage `rope`: x1 <- fma(x1, cos, -(x2 sin)), x2 <- fma(x2, cos, x1 sin) (core/rope.h).
//
// Whether a call has an embedding is a type, so that calls without one carry none of its registers.
// The angles of a tile's rows are staged in shared memory: at d 128 in FP32 they are twice the rows
// themselves. A thread block therefore takes the heads of the same rows one after another.
#pragma once

#include "sm90/quantize/rotate.cuh"

namespace octavo::sm90 {

struct NoRope {
  static constexpr bool kTurns = false;
  template <int kD>
  static std::size_t shared_bytes(const RopeArgs&) {
    return 0;
  }
  __device__ NoRope(const RopeArgs&, void*) {}
  template <int kD>
  __device__ void start(std::int64_t, int) const {}
};

__device__ inline float table_value(const void* table, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) return static_cast<const float*>(table)[i];
  const std::uint32_t bits = static_cast<const std::uint16_t*>(table)[i];
  return dtype == DType::bf16 ? __uint_as_float(bits << 16) : half_bits_to_float(bits);
}

__device__ inline float4 table_values(const void* table, const RopeArgs& rope, std::int64_t i) {
  if (rope.wide_loads) {
    return *reinterpret_cast<const float4*>(static_cast<const float*>(table) + i);
  }
  return {table_value(table, rope.dtype, i), table_value(table, rope.dtype, i + 1),
          table_value(table, rope.dtype, i + 2), table_value(table, rope.dtype, i + 3)};
}

/// angle: cos and sin.
__device__ inline void turn_pair(float& x1, float& x2, float cos, float sin) {
  const float y1 = fmaf(x1, cos, -__fmul_rn(x2, sin));
  x2 = fmaf(x2, cos, __fmul_rn(x1, sin));
  x1 = y1;
}

/// Pairs of neighbours.
template <int kCount>
__device__ void turn_neighbours(float* x, const float (&cos)[kCount], const float (&sin)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) turn_pair(x[2 * i], x[2 * i + 1], cos[i], sin[i]);
}

/// One of a pair: x is x1 where `lower`, else x2.
__device__ inline float turn_one(float x, float other, bool lower, float cos, float sin) {
  const float product = __fmul_rn(other, sin);
  return fmaf(x, cos, lower ? -product : product);
}

/// Where a row's angles lie: its cosines, and behind those of all rows its sines. Fours of angles
/// are exchanged so that threads which read at the same time, of two rows or four, meet in no bank
/// where the embedding has all channels.
template <int kD>
class AnglePlace {
  static constexpr int kOfThread = TileShape<kD>::kRun / 4;  // fours next to each other

 public:
  __device__ AnglePlace(const RopeArgs& rope, const float* angles, int row)
      : cos_(angles + row * row_floats(rope)),
        sines_(kTileRows * row_floats(rope)),
        flip_(kOfThread == 1 ? (row & 1) * 4 + (row & 2) : (row & 1) * 5) {}

  /// Of a row.
  __host__ __device__ static int row_floats(const RopeArgs& rope) {
    return (rope.half + 31) / 32 * 32;
  }
  /// The cosine of angle i; a four of them where i is a multiple of 4.
  __device__ const float* cos(int i) const {
    const int four = i / 4, spread = kOfThread > 2 ? four / 8 % 4 * 2 : 0;
    return cos_ + (((four ^ flip_) ^ spread) * 4 + i % 4);
  }
  __device__ const float* sin(int i) const { return cos(i) + sines_; }

  /// kCount neighbouring angles from i on, a multiple of kCount = 2 or 4.
  template <int kCount>
  __device__ void load(int i, float (&c)[kCount], float (&s)[kCount]) const {
    load_floats(cos(i), c), load_floats(sin(i), s);
  }

 private:
  static __device__ void load_floats(const float* from, float (&x)[4]) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  }
  static __device__ void load_floats(const float* from, float (&x)[2]) {
    const float2 v = *reinterpret_cast<const float2*>(from);
    x[0] = v.x, x[1] = v.y;
  }

  const float* cos_;
  int sines_;  // floats from a cosine to its sine
  int flip_;
};

class WithRope {
 public:
  static constexpr bool kTurns = true;

  template <int kD>
  static std::size_t shared_bytes(const RopeArgs& rope) {
    return static_cast<std::size_t>(2 * kTileRows * AnglePlace<kD>::row_floats(rope)) *
           sizeof(float);
  }
  /// `memory`: shared_bytes() of shared memory.
  __device__ WithRope(const RopeArgs& rope, void* memory)
      : rope_(rope), angle_(static_cast<float*>(memory)) {}

  /// Starts to stage the angles of positions [first, first + 128), the last one repeated from
  /// `count` on. All threads call.
  template <int kD>
  __device__ void start(std::int64_t first, int count) const {
    if (!rope_.wide_loads) return;
    for_angles<kD>(first, count, [&](float* c, float* s, std::int64_t cos, std::int64_t sin) {
      ptx::cp_async_16(c, static_cast<const float*>(rope_.cos) + cos, true);
      ptx::cp_async_16(s, static_cast<const float*>(rope_.sin) + sin, true);
    });
    ptx::cp_async_commit();
  }

  /// Stages what start() could not. A barrier must follow.
  template <int kD>
  __device__ void finish(std::int64_t first, int count) const {
    ptx::cp_async_wait<0>();
    if (rope_.wide_loads) return;
    for_angles<kD>(first, count, [&](float* c, float* s, std::int64_t cos, std::int64_t sin) {
      *reinterpret_cast<float4*>(c) = table_values(rope_.cos, rope_, cos);
      *reinterpret_cast<float4*>(s) = table_values(rope_.sin, rope_, sin);
    });
  }

  /// Turns a thread's values of its i-th row.
  template <int kD, int kBytes>
  __device__ void turn(const OperandArgs& operand, const RowBlock& rows, const ArrivalPlace<kD>& at,
                       int i, GroupValues<kD>& x) const {
    const AnglePlace<kD> angles(rope_, angle_, at.row_at(i));
    if (rope_.interleaved) {
      turn_interleaved<kD>(at, angles, x);
    } else if (2 * rope_.half == kD) {
      turn_halves<kD>(at, angles, x);
    } else if (at.row_at(i) < rows.valid) {
      turn_part<kD, kBytes>(operand, rows, at, at.row_at(i), angles, x);
    }
  }

 private:
  /// Calls visit(where four cosines and their sines are staged, where they are in the tables):
  /// eight threads a row, each with every eighth four.
  template <int kD, typename Visit>
  __device__ void for_angles(std::int64_t first, int count, const Visit& visit) const {
    const int lane = static_cast<int>(threadIdx.x) % 8, step = static_cast<int>(blockDim.x) / 8;
    for (int row = static_cast<int>(threadIdx.x) / 8; row < kTileRows; row += step) {
      const std::int64_t position = first + min(row, count - 1);
      const AnglePlace<kD> place(rope_, angle_, row);
      for (int i = 4 * lane; i < rope_.half; i += 32) {
        visit(const_cast<float*>(place.cos(i)), const_cast<float*>(place.sin(i)),
              position * rope_.cos_stride + i, position * rope_.sin_stride + i);
      }
    }
  }

  template <int kD>
  __device__ void turn_interleaved(const ArrivalPlace<kD>& at, const AnglePlace<kD>& angles,
                                   GroupValues<kD>& x) const {
    using Shape = TileShape<kD>;
    constexpr int kAngles = ArrivalPlace<kD>::kPiece / 2;
#pragma unroll
    for (int run = 0; run < 2 * Shape::kBlocks; ++run) {
      const int side = run % 2, block = run / 2;
      const int first = at.first_channel() + at.channel_step(side, block);
#pragma unroll
      for (int c = 0; c < Shape::kRun; c += 2 * kAngles) {
        const int i = (first + c) / 2;
        if (i >= rope_.half) continue;
        float cos[kAngles], sin[kAngles];
        angles.load(i, cos, sin);
        turn_neighbours(&x[side][block][c], cos, sin);
      }
    }
  }

  /// half_split over all of the row: both channels of a pair are this thread's, as many runs apart
  /// as there are blocks.
  template <int kD>
  __device__ void turn_halves(const ArrivalPlace<kD>& at, const AnglePlace<kD>& angles,
                              GroupValues<kD>& x) const {
    using Shape = TileShape<kD>;
#pragma unroll
    for (int low = 0; low < Shape::kBlocks; ++low) {
      const int high = low + Shape::kBlocks;
      float(&x1)[Shape::kRun] = x[low % 2][low / 2];
      float(&x2)[Shape::kRun] = x[high % 2][high / 2];
#pragma unroll
      for (int c = 0; c < Shape::kRun; c += 4) {
        float cos[4], sin[4];
        angles.load(at.first_channel() + at.channel_step(low % 2, low / 2) + c, cos, sin);
#pragma unroll
        for (int j = 0; j < 4; ++j) turn_pair(x1[c + j], x2[c + j], cos[j], sin[j]);
      }
    }
  }

  /// half_split over a part of the row: partners may be another thread's, so they are read again.
  template <int kD, int kBytes>
  __device__ void turn_part(const OperandArgs& operand, const RowBlock& rows,
                            const ArrivalPlace<kD>& at, int row, const AnglePlace<kD>& angles,
                            GroupValues<kD>& x) const {
    using Shape = TileShape<kD>;
    constexpr int kPiece = ArrivalPlace<kD>::kPiece;
#pragma unroll
    for (int run = 0; run < 2 * Shape::kBlocks; ++run) {
      const int side = run % 2, block = run / 2;
      const int first = at.first_channel() + at.channel_step(side, block);
#pragma unroll
      for (int c = 0; c < Shape::kRun; c += kPiece) {
        const int channel = first + c;
        if (channel >= 2 * rope_.half) continue;
        const bool lower = channel < rope_.half;
        const int from = lower ? channel + rope_.half : channel - rope_.half;
        const Unit<kBytes, kPiece> partner[1] = {load_unit<kBytes, kPiece>(
            element<kBytes>(operand, rows, row, from), operand.wide_loads)};
        float other[1][kPiece];
        unpack(partner, operand.dtype, other);
#pragma unroll
        for (int j = 0; j < kPiece; j += 4) {
          float cos[4], sin[4];
          angles.load(min(channel, from) + j, cos, sin);
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            float& y = x[side][block][c + j + k];
            y = turn_one(y, other[0][j + k], lower, cos[k], sin[k]);
          }
        }
      }
    }
  }

  const RopeArgs& rope_;
  float* angle_;
};

}  // namespace octavo::sm90
