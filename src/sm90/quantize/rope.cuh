// SPDX-License-Identifier: Apache-2.0
// Stage `rope`: x1 <- fma(x1, cos, -(x2 sin)), x2 <- fma(x2, cos, x1 sin) (core/rope.h).
//
// Whether a call has an embedding is a type, so that calls without one carry none of its registers.
// The angles of a tile's rows are staged in shared memory: at d 128 in FP32 they are twice the rows
// themselves. A thread block therefore takes the heads of the same rows one after another.
//
// Rows come with the rotation's signs already (x1 s1, x2 s2; s = +-1), and leave with them: turning
// by s1 s2 sin instead of sin does that, bit for bit.
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
  template <int kD, int kBytes>
  __device__ void turn(const OperandArgs&, const RowBlock&, const ArrivalPlace<kD>&, int,
                       const Signs<kD>&, float (&)[Rows<kD>::kUnits][kChannels]) const {}
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

/// The four pairs of neighbours of a unit.
__device__ inline void turn_unit(float (&x)[kChannels], float4 cos, float4 sin) {
  turn_pair(x[0], x[1], cos.x, sin.x);
  turn_pair(x[2], x[3], cos.y, sin.y);
  turn_pair(x[4], x[5], cos.z, sin.z);
  turn_pair(x[6], x[7], cos.w, sin.w);
}

/// One of a pair: x is x1 where `lower`, else x2.
__device__ inline float turn_one(float x, float other, bool lower, float cos, float sin) {
  const float product = __fmul_rn(other, sin);
  return fmaf(x, cos, lower ? -product : product);
}

/// Where angles lie: those of two neighbouring rows together, first their cosines. Threads of both
/// rows that read at the same time (four fours of angles apart where the row is in ArrivalPlace's
/// pairs) find neighbouring fours, so that none meet in a bank.
template <int kD>
struct AnglePlace {
  static constexpr int kApart = kD <= 64 ? 2 : 4;  // threads of a row with angles of their own
  const float* cos;
  int sines;  // floats from there to the sines

  __device__ AnglePlace(const RopeArgs& rope, const float* angles, int row)
      : cos(angles + row / 2 * pair_floats(rope) + row % 2 * kApart * 4),
        sines(pair_floats(rope) / 2) {}

  /// Floats of two rows.
  __host__ __device__ static int pair_floats(const RopeArgs& rope) {
    constexpr int kGroup = 16 * kApart;
    return (rope.half + kGroup - 1) / kGroup * kGroup * 4;
  }
  /// Offset of the four angles from i on, a multiple of 4: the sum of those of i % (16 kApart) and
  /// of the rest.
  static __device__ constexpr int at(int i) {
    const int four = i / 4, group = four / (4 * kApart);
    return ((four % 4 + 4 * group) * 2 * kApart + four / 4 % kApart) * 4;
  }
  /// The cosines and sines at offset `at`.
  __device__ void four(int at, float4& c, float4& s) const {
    c = *reinterpret_cast<const float4*>(cos + at);
    s = *reinterpret_cast<const float4*>(cos + sines + at);
  }
  /// As four(), the eight from there on.
  __device__ void eight(int at, float (&c)[kChannels], float (&s)[kChannels]) const {
    constexpr int kNext = 2 * kApart * 4;
    load4(cos + at, c), load4(cos + at + kNext, c + 4);
    load4(cos + sines + at, s), load4(cos + sines + at + kNext, s + 4);
  }

 private:
  static __device__ void load4(const float* from, float* x) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  }
};

class WithRope {
 public:
  static constexpr bool kTurns = true;

  template <int kD>
  static std::size_t shared_bytes(const RopeArgs& rope) {
    return static_cast<std::size_t>(kTileRows / 2 * AnglePlace<kD>::pair_floats(rope)) *
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
    for_angles<kD>(first, count,
                   [&](float4* c, float4* s, std::int64_t cos, std::int64_t sin, int) {
                     ptx::cp_async_16(c, static_cast<const float*>(rope_.cos) + cos, true);
                     ptx::cp_async_16(s, static_cast<const float*>(rope_.sin) + sin, true);
                   });
    ptx::cp_async_commit();
  }

  /// Stages what start() could not, and gives sines their signs. A barrier must follow.
  template <int kD>
  __device__ void finish(std::int64_t first, int count, const Signs<kD>& signs) const {
    ptx::cp_async_wait<0>();
    for_angles<kD>(
        first, count, [&](float4* c, float4* s, std::int64_t cos, std::int64_t sin, int i) {
          if (!rope_.wide_loads) {
            *c = table_values(rope_.cos, rope_, cos);
            *s = table_values(rope_.sin, rope_, sin);
          }
          const float4 x = *s;
          *s = {flipped(x.x, pair_sign(signs, i)), flipped(x.y, pair_sign(signs, i + 1)),
                flipped(x.z, pair_sign(signs, i + 2)), flipped(x.w, pair_sign(signs, i + 3))};
        });
  }

  /// Turns a thread's units of row `row` of the tile.
  template <int kD, int kBytes>
  __device__ void turn(const OperandArgs& operand, const RowBlock& rows, const ArrivalPlace<kD>& at,
                       int row, const Signs<kD>& signs,
                       float (&x)[Rows<kD>::kUnits][kChannels]) const {
    const AnglePlace<kD> angles(rope_, angle_, row);
    if (rope_.interleaved) {
      turn_neighbours<kD>(at, angles, x);
    } else if (2 * rope_.half == kD && halves_in_thread<kD>(at)) {
      turn_halves<kD>(at, angles, x);
    } else if (2 * rope_.half == kD && kD == 64) {
      turn_across<kD>(at, angles, x);
    } else {
      turn_part<kD, kBytes>(operand, rows, at, row, signs, x);
    }
  }

 private:
  /// Calls visit(where four cosines and their sines are staged, where they are in the tables,
  /// number of the first angle): eight threads a row, each with every eighth four.
  template <int kD, typename Visit>
  __device__ void for_angles(std::int64_t first, int count, const Visit& visit) const {
    using Place = AnglePlace<kD>;
    const int lane = static_cast<int>(threadIdx.x) % 8, step = static_cast<int>(blockDim.x) / 8;
    for (int row = static_cast<int>(threadIdx.x) / 8; row < kTileRows; row += step) {
      const std::int64_t position = first + min(row, count - 1);
      const Place place(rope_, angle_, row);
      for (int i = 4 * lane; i < rope_.half; i += 32) {
        auto* cos = const_cast<float*>(place.cos) + Place::at(i);
        visit(reinterpret_cast<float4*>(cos), reinterpret_cast<float4*>(cos + place.sines),
              position * rope_.cos_stride + i, position * rope_.sin_stride + i, i);
      }
    }
  }

  /// Sign bit of s1 s2 of pair i.
  template <int kD>
  __device__ std::uint32_t pair_sign(const Signs<kD>& signs, int i) const {
    const int first = rope_.interleaved ? 2 * i : i, apart = rope_.interleaved ? 1 : rope_.half;
    return signs.value[signs.at(first)] ^ signs.value[signs.at(first + apart)];
  }

  template <int kD>
  __device__ void turn_neighbours(const ArrivalPlace<kD>& at, const AnglePlace<kD>& angles,
                                  float (&x)[Rows<kD>::kUnits][kChannels]) const {
#pragma unroll
    for (int k = 0; k < Rows<kD>::kUnits; ++k) {
      const int i = at.channel(k) / 2;
      if (i >= rope_.half) continue;
      float4 c, s;
      angles.four(AnglePlace<kD>::at(i), c, s);
      turn_unit(x[k], c, s);
    }
  }

  /// Whether channels c and c + kD / 2 are the same thread's.
  template <int kD>
  static __device__ bool halves_in_thread(const ArrivalPlace<kD>& at) {
    if constexpr (kD == 64) return !at.pairs;
    return kD % 64 == 0;
  }

  /// half_split over all of a row of 64 channels in neighbours: partners are two threads apart.
  template <int kD>
  __device__ void turn_across(const ArrivalPlace<kD>& at, const AnglePlace<kD>& angles,
                              float (&x)[Rows<kD>::kUnits][kChannels]) const {
    const bool lower = at.l < kThreadsPerRow / 2;
#pragma unroll
    for (int k = 0; k < Rows<kD>::kUnits; ++k) {
      const int i = at.channel(k) % (kD / 2);
#pragma unroll
      for (int j = 0; j < kChannels; j += 4) {
        float4 c, s;
        angles.four(AnglePlace<kD>::at(i) + AnglePlace<kD>::at(j), c, s);
        const auto turn = [&](float& y, float cos, float sin) {
          const float other = __shfl_xor_sync(0xffffffffu, y, kThreadsPerRow / 2);
          y = turn_one(y, other, lower, cos, sin);
        };
        turn(x[k][j], c.x, s.x), turn(x[k][j + 1], c.y, s.y);
        turn(x[k][j + 2], c.z, s.z), turn(x[k][j + 3], c.w, s.w);
      }
    }
  }

  /// half_split over all of the row: both channels of a pair are this thread's.
  template <int kD>
  __device__ void turn_halves(const ArrivalPlace<kD>& at, const AnglePlace<kD>& angles,
                              float (&x)[Rows<kD>::kUnits][kChannels]) const {
    using Place = AnglePlace<kD>;
    constexpr int kHalf = Rows<kD>::kUnits / 2;
#pragma unroll
    for (int k = 0; k < kHalf; ++k) {
#pragma unroll
      for (int j = 0; j < kChannels; j += 4) {
        float4 c, s;
        const int unit = Place::at(k % 2 == 0 ? at.near() : at.far());
        angles.four(unit + Place::at(at.channel_step(k) + j), c, s);
        turn_pair(x[k][j], x[k + kHalf][j], c.x, s.x);
        turn_pair(x[k][j + 1], x[k + kHalf][j + 1], c.y, s.y);
        turn_pair(x[k][j + 2], x[k + kHalf][j + 2], c.z, s.z);
        turn_pair(x[k][j + 3], x[k + kHalf][j + 3], c.w, s.w);
      }
    }
  }

  /// half_split over a part of the row: partners may be another thread's, so they are read again.
  template <int kD, int kBytes>
  __device__ void turn_part(const OperandArgs& operand, const RowBlock& rows,
                            const ArrivalPlace<kD>& at, int row, const Signs<kD>& signs,
                            float (&x)[Rows<kD>::kUnits][kChannels]) const {
#pragma unroll
    for (int k = 0; k < Rows<kD>::kUnits; ++k) {
      const int channel = at.channel(k);
      if (channel >= 2 * rope_.half) continue;
      const bool lower = channel < rope_.half;
      const int i = lower ? channel : channel - rope_.half;
      if (row >= rows.valid) continue;
      const int from = lower ? channel + rope_.half : i;
      const Unit<kBytes> partner[1] = {
          load_unit<kBytes>(element<kBytes>(operand, rows, row, from), operand.wide_loads)};
      float other[1][kChannels], c[kChannels], s[kChannels];
      unpack(partner, operand.dtype, UnitSigns{signs.value + signs.at(from)}, other);
      AnglePlace<kD>(rope_, angle_, row).eight(AnglePlace<kD>::at(i), c, s);
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        x[k][j] = turn_one(x[k][j], other[0][j], lower, c[j], s[j]);
      }
    }
  }

  const RopeArgs& rope_;
  float* angle_;
};

}  // namespace octavo::sm90
