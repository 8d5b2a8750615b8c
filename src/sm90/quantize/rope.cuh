// SPDX-License-Identifier: Apache-2.0
// Stage `rope`: x1 <- fma(x1, cos, -(x2 sin)), x2 <- fma(x2, cos, x1 sin) (core/rope.h).
//
// Whether a call has an embedding is a type, so that calls without one carry none of its registers.
// Thread blocks of neighbouring heads form a cluster: they need the same rows' angles, so each
// reads a share of them and writes it into the shared memory of all. Without that the angles, 512
// bytes a row at d 128 in FP32, would be twice the traffic of the row itself.
#pragma once

#include <cooperative_groups.h>

#include "sm90/quantize/rotate.cuh"

namespace octavo::sm90 {

struct NoRope {
  static constexpr bool kTurns = false;
  static std::size_t shared_bytes(const RopeArgs&) { return 0; }
  __device__ NoRope(const RopeArgs&, void*) {}
  __device__ void stage(std::int64_t, int) {}
  template <int kBytes>
  __device__ float2 pair(const char* raw, int channel, bool is_bf16, int) const {
    return load_pair<kBytes>(raw + channel * kBytes, is_bf16);
  }
  template <int kD>
  __device__ void embed(const Place<kD>&, int, float (&)[kChannels]) const {}
};

__device__ inline float table_value(const void* table, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) return static_cast<const float*>(table)[i];
  const std::uint32_t bits = static_cast<const std::uint16_t*>(table)[i];
  return dtype == DType::bf16 ? __uint_as_float(bits << 16) : half_bits_to_float(bits);
}

class WithRope {
 public:
  static constexpr bool kTurns = true;

  static std::size_t shared_bytes(const RopeArgs& rope) {
    return static_cast<std::size_t>(2 * kTileRows * rope.half) * sizeof(float);
  }

  /// `angles`: shared_bytes() of shared memory.
  __device__ WithRope(const RopeArgs& rope, void* angles)
      : rope_(rope),
        cos_(static_cast<float*>(angles)),
        sin_(static_cast<float*>(angles) + kTileRows * rope.half) {}

  /// Angles of positions [first, first + 128), the last one repeated from `count` on. All threads
  /// of the cluster call with the same arguments; synchronises it.
  __device__ void stage(std::int64_t first, int count) {
    const auto cluster = cooperative_groups::this_cluster();
    const int blocks = static_cast<int>(cluster.num_blocks());
    const int threads = static_cast<int>(blockDim.x);
    cluster.sync();
    for (int i = static_cast<int>(cluster.block_rank()) * threads + static_cast<int>(threadIdx.x);
         i < kTileRows * rope_.half; i += blocks * threads) {
      const std::int64_t position = first + min(i / rope_.half, max(count - 1, 0));
      const int pair = i % rope_.half;
      const float c = table_value(rope_.cos, rope_.dtype, position * rope_.cos_stride + pair);
      const float s = table_value(rope_.sin, rope_.dtype, position * rope_.sin_stride + pair);
      for (int block = 0; block < blocks; ++block) {
        *cluster.map_shared_rank(cos_ + i, block) = c;
        *cluster.map_shared_rank(sin_ + i, block) = s;
      }
    }
    cluster.sync();
  }

  /// Channels `channel` and `channel` + 1 of row `row` of the tile, turned. raw: the row.
  template <int kBytes>
  __device__ float2 pair(const char* raw, int channel, bool is_bf16, int row) const {
    float2 x = load_pair<kBytes>(raw + channel * kBytes, is_bf16);
    if (channel >= 2 * rope_.half) return x;
    const float* cos = cos_ + row * rope_.half;
    const float* sin = sin_ + row * rope_.half;
    if (rope_.interleaved) {
      turn(x.x, x.y, cos[channel / 2], sin[channel / 2]);
      return x;
    }
    const bool lower = channel < rope_.half;
    const int at = lower ? channel : channel - rope_.half;
    const int partner = lower ? channel + rope_.half : at;
    const float2 other = load_pair<kBytes>(raw + partner * kBytes, is_bf16);
    const float2 product = {__fmul_rn(other.x, sin[at]), __fmul_rn(other.y, sin[at + 1])};
    return {fmaf(x.x, cos[at], lower ? -product.x : product.x),
            fmaf(x.y, cos[at + 1], lower ? -product.y : product.y)};
  }

  /// Turns this lane's eight channels of row `row` of the tile. All lanes of a warp call: under
  /// half_split the partner channels are another lane's.
  template <int kD>
  __device__ void embed(const Place<kD>& at, int row, float (&x)[kChannels]) const {
    const bool turns = at.channel < 2 * rope_.half;
    if (rope_.interleaved) {
      if (turns) embed_interleaved(row * rope_.half + at.channel / 2, x);
    } else {
      const bool lower = at.channel < rope_.half;
      const int pair = turns ? (lower ? at.channel : at.channel - rope_.half) : 0;
      const int distance = rope_.half / kChannels;
      const int partner = turns ? (lower ? at.lane + distance : at.lane - distance) : at.lane;
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        const float other = __shfl_sync(0xffffffffu, x[j], partner, TileShape<kD>::kLanes);
        const float product = __fmul_rn(other, sin_[row * rope_.half + pair + j]);
        const float turned =
            fmaf(x[j], cos_[row * rope_.half + pair + j], lower ? -product : product);
        x[j] = turns ? turned : x[j];
      }
    }
  }

 private:
  static __device__ void turn(float& x1, float& x2, float c, float s) {
    const float y1 = fmaf(x1, c, -__fmul_rn(x2, s));
    x2 = fmaf(x2, c, __fmul_rn(x1, s));
    x1 = y1;
  }

  __device__ void embed_interleaved(int at, float (&x)[kChannels]) const {
#pragma unroll
    for (int j = 0; j < kChannels / 2; ++j) {
      turn(x[2 * j], x[2 * j + 1], cos_[at + j], sin_[at + j]);
    }
  }

  const RopeArgs& rope_;
  float* cos_;
  float* sin_;
};

}  // namespace octavo::sm90
