// SPDX-License-Identifier: Apache-2.0
// Stage `rope`: x1 <- fma(x1, cos, -(x2 sin)), x2 <- fma(x2, cos, x1 sin) (core/rope.h).
//
// Whether a call has an embedding is a type, so that calls without one carry none of its registers.
// The angles of a tile's rows are staged in shared memory, 512 bytes a row at d 128 in FP32: twice
// the row itself. A thread block therefore takes the heads of the same rows one after another.
#pragma once

#include "sm90/quantize/rotate.cuh"

namespace octavo::sm90 {

struct NoRope {
  static constexpr bool kTurns = false;
  static std::size_t shared_bytes(const RopeArgs&) { return 0; }
  __device__ NoRope(const RopeArgs&, void*) {}
  __device__ void stage(std::int64_t, int) {}
  template <int kBytes, typename From>
  __device__ float2 pair(const char* raw, int channel, int) const {
    return load_pair<kBytes, From>(raw + channel * kBytes);
  }
  template <int kD>
  __device__ void embed(const Place<kD>&, int, float (&)[kChannels]) const {}
};

__device__ inline float table_value(const void* table, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) return static_cast<const float*>(table)[i];
  const std::uint32_t bits = static_cast<const std::uint16_t*>(table)[i];
  return dtype == DType::bf16 ? __uint_as_float(bits << 16) : half_bits_to_float(bits);
}

/// Angles of a tile's rows in shared memory, as pairs (cos, sin). The padding moves rows by 8
/// banks.
class StagedAngles {
 public:
  static std::size_t shared_bytes(const RopeArgs& rope) {
    return static_cast<std::size_t>(kTileRows * (rope.half + kPadding)) * sizeof(float2);
  }
  __device__ StagedAngles(const RopeArgs& rope, void* memory)
      : rope_(rope), angle_(static_cast<float2*>(memory)) {}

  /// Angles of positions [first, first + 128), the last one repeated from `count` on; nothing where
  /// they are there already. All threads call; synchronises.
  __device__ void stage(std::int64_t first, int count) {
    if (first == first_) return;
    first_ = first;
    __syncthreads();
    const int warps = static_cast<int>(blockDim.x) / 32,
              in_warp = static_cast<int>(threadIdx.x) % 32;
    for (int row = static_cast<int>(threadIdx.x) / 32; row < kTileRows; row += warps) {
      const std::int64_t position = first + min(row, max(count - 1, 0));
      for (int i = in_warp; i < rope_.half; i += 32) {
        angle_[row * (rope_.half + kPadding) + i] = {
            table_value(rope_.cos, rope_.dtype, position * rope_.cos_stride + i),
            table_value(rope_.sin, rope_.dtype, position * rope_.sin_stride + i)};
      }
    }
    __syncthreads();
  }

  __device__ float2 at(int row, int i) const { return angle_[row * (rope_.half + kPadding) + i]; }

 private:
  static constexpr int kPadding = 4;
  const RopeArgs& rope_;
  float2* angle_;
  std::int64_t first_ = -1;
};

class WithRope {
 public:
  static constexpr bool kTurns = true;
  static std::size_t shared_bytes(const RopeArgs& rope) { return StagedAngles::shared_bytes(rope); }

  /// `memory`: shared_bytes() of shared memory.
  __device__ WithRope(const RopeArgs& rope, void* memory) : rope_(rope), angles_(rope, memory) {}

  __device__ void stage(std::int64_t first, int count) { angles_.stage(first, count); }

  /// Channels `channel` and `channel` + 1 of row `row` of the tile, turned. raw: the row.
  template <int kBytes, typename From>
  __device__ float2 pair(const char* raw, int channel, int row) const {
    float2 x = load_pair<kBytes, From>(raw + channel * kBytes);
    if (channel >= 2 * rope_.half) return x;
    if (rope_.interleaved) {
      turn(x.x, x.y, angles_.at(row, channel / 2));
      return x;
    }
    const bool lower = channel < rope_.half;
    const int at = lower ? channel : channel - rope_.half;
    const int partner = lower ? channel + rope_.half : at;
    const float2 other = load_pair<kBytes, From>(raw + partner * kBytes);
    return {turn_one(x.x, other.x, lower, angles_.at(row, at)),
            turn_one(x.y, other.y, lower, angles_.at(row, at + 1))};
  }

  /// Turns this lane's eight channels of row `row` of the tile. All lanes of a warp call: under
  /// half_split the partner channels are another lane's.
  template <int kD>
  __device__ void embed(const Place<kD>& at, int row, float (&x)[kChannels]) const {
    const bool turns = at.channel < 2 * rope_.half;
    if (rope_.interleaved) {
#pragma unroll
      for (int j = 0; j < kChannels / 2; ++j) {
        if (turns) turn(x[2 * j], x[2 * j + 1], angles_.at(row, at.channel / 2 + j));
      }
      return;
    }
    const bool lower = at.channel < rope_.half;
    const int pair = turns ? (lower ? at.channel : at.channel - rope_.half) : 0;
    const int distance = rope_.half / kChannels;
    const int partner = turns ? (lower ? at.lane + distance : at.lane - distance) : at.lane;
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      const float other = __shfl_sync(0xffffffffu, x[j], partner, TileShape<kD>::kLanes);
      const float turned = turn_one(x[j], other, lower, angles_.at(row, pair + j));
      x[j] = turns ? turned : x[j];
    }
  }

 private:
  /// angle: (cos, sin).
  static __device__ void turn(float& x1, float& x2, float2 angle) {
    const float y1 = fmaf(x1, angle.x, -__fmul_rn(x2, angle.y));
    x2 = fmaf(x2, angle.x, __fmul_rn(x1, angle.y));
    x1 = y1;
  }
  /// One of a pair: x is x1 where `lower`, else x2.
  static __device__ float turn_one(float x, float other, bool lower, float2 angle) {
    const float product = __fmul_rn(other, angle.y);
    return fmaf(x, angle.x, lower ? -product : product);
  }

  const RopeArgs& rope_;
  StagedAngles angles_;
};

}  // namespace octavo::sm90
