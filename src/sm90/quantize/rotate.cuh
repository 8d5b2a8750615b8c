// SPDX-License-Identifier: Apache-2.0
// Stage `rotate`: x <- x D H (core/hadamard.h). Two of the distances, 16 and 32 channels (8 and 16
// where a thread's units are no pairs), are between the threads of a row; all others between
// registers.
#pragma once

#include <climits>

#include "sm90/ptx/opaque.cuh"
#include "sm90/quantize/load.cuh"

namespace octavo::sm90 {

/// A thread's rows of Q or K in FP32.
template <int kD>
struct Rows {
  static constexpr int kCount = TileShape<kD>::kRows, kUnits = TileShape<kD>::kRowUnits;
  float x[kCount][kUnits][kChannels];

  /// The same values, unit after unit and row after row.
  __device__ auto& units() { return reinterpret_cast<float(&)[kCount * kUnits][kChannels]>(x); }
  __device__ auto& flat() { return reinterpret_cast<float(&)[kCount][kUnits * kChannels]>(x); }
};

/// One word a channel in shared memory; the padding keeps the threads of a row apart.
template <int kD, typename T>
struct ChannelConstants {
  alignas(16) T value[kD + kD / 8];

  static __device__ constexpr int at(int channel) { return channel + channel / 32 * 4; }
  /// What `place` needs from: add at(RowPlace::channel_step(k)).
  __device__ const T* of(const RowPlace<kD>& place) const {
    return value + at(place.first_channel());
  }
};

/// Sign bits that D exchanges.
template <int kD>
using Signs = ChannelConstants<kD, std::uint32_t>;

__device__ inline std::uint32_t sign_bit(const SignBits& signs, int channel) {
  return signs.negative(channel) ? 0x80000000u : 0;
}

/// All threads call; a barrier must follow.
template <int kD>
__device__ void init_signs(const QuantizeArgs& args, Signs<kD>& out) {
  static_assert(TileShape<kD>::kThreads >= kD);
  const int c = static_cast<int>(threadIdx.x);
  if (c < kD) out.value[out.at(c)] = args.rotate ? sign_bit(args.signs, c) : 0;
}

/// Eight neighbouring words that start on a 16-byte boundary.
__device__ inline void load8(const float* from, float (&x)[kChannels]) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
  x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

/// The sign bits of a thread's units, for unpack().
template <int kD>
struct ThreadSigns {
  const std::uint32_t* first;

  __device__ std::uint32_t operator()(int i, int j) const {
    return first[Signs<kD>::at(RowPlace<kD>::channel_step(i)) + j];
  }
};

/// As ThreadSigns, from the bits themselves. FP32 rows of 256 channels leave no registers for sign
/// words on their way from shared memory; this needs one for eight channels, and a shift for each.
template <int kD>
struct ThreadSignBits {
  const SignBits& signs;
  int first;           // channel
  std::uint32_t sign;  // 0 where nothing is rotated

  __device__ ThreadSignBits(const QuantizeArgs& args, const RowPlace<kD>& at)
      : signs(args.signs),
        first(at.first_channel()),
        sign(ptx::opaque(args.rotate ? INT_MIN : 0)) {}

  __device__ std::uint32_t operator()(int i, int j) const {
    const int channel = first + RowPlace<kD>::channel_step(i);
    const auto bits = static_cast<std::uint32_t>(signs.word[channel / 64] >> channel % 64);
    return bits << (31 - j) & sign;
  }
};

__device__ inline void butterfly(float& a, float& b) {
  const float sum = __fadd_rn(a, b);
  b = __fsub_rn(a, b);
  a = sum;
}

/// Butterflies with the thread at `distance` of the row: a + b for the lower, a - b for the upper
/// one, both as own * +-1 + other.
template <int kD>
__device__ void rotate_across(int l, int distance, float (&x)[Rows<kD>::kUnits][kChannels]) {
  const float sign = (l & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
  for (int k = 0; k < Rows<kD>::kUnits; ++k) {
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      x[k][j] = fmaf(x[k][j], sign, __shfl_xor_sync(0xffffffffu, x[k][j], distance));
    }
  }
}

/// Butterflies between units of one thread, `distance` of its units apart.
template <int kD>
__device__ void rotate_units(int distance, float (&x)[Rows<kD>::kUnits][kChannels]) {
#pragma unroll
  for (int i = 0; i < Rows<kD>::kUnits * kChannels; ++i) {
    const int k = i / kChannels, j = i % kChannels;
    if ((k & distance) == 0) butterfly(x[k][j], x[k + distance][j]);
  }
}

template <int kD>
__device__ void rotate_rows(int l, Rows<kD>& rows) {
  constexpr bool kPairs = RowPlace<kD>::kPairs;
#pragma unroll
  for (auto& x : rows.x) {
    if constexpr (kPairs) rotate_units<kD>(1, x);  // channels 8 apart
    rotate_across<kD>(l, 1, x);
    rotate_across<kD>(l, 2, x);
#pragma unroll
    for (int h = kPairs ? 2 : 1; h < hadamard_size(kD) / (kChannels * kThreadsPerRow); h *= 2) {
      rotate_units<kD>(h, x);
    }
#pragma unroll
    for (int h = 1; h < kChannels; h *= 2) {
#pragma unroll
      for (int i = 0; i < Rows<kD>::kUnits * kChannels; ++i) {
        const int k = i / kChannels, j = i % kChannels;
        if ((j & h) == 0) butterfly(x[k][j], x[k][j + h]);
      }
    }
  }
}

}  // namespace octavo::sm90
