// SPDX-License-Identifier: Apache-2.0
// Stage `rotate`: x <- x D H (core/hadamard.h). Two of the distances are between the threads of a
// row, all others between registers.
//
// Where the head dim is a power of two the two are 16 and 32 channels. Each thread keeps half of
// its values, sends the other half and gets as many: that channel 8 apart becomes the thread, and
// the one 16 apart a register. It then works out both a + b and a - b, so half as many values
// travel as where each thread works out one of them. What a thread makes of the half it kept has
// the wrong sign where it was `b` that it kept: rotation_flips(), which the mean has as well and
// the scale takes back.
//
// Else distances 8 and 16 are between threads, each of which sends all it has.
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
  const std::uint32_t *near, *far;

  __device__ ThreadSigns(const Signs<kD>& signs, const ArrivalPlace<kD>& at)
      : near(signs.value + signs.at(at.near())), far(signs.value + signs.at(at.far())) {}

  __device__ std::uint32_t operator()(int i, int j) const {
    const int k = i % TileShape<kD>::kRowUnits;
    return (k % 2 == 0 ? near : far)[Signs<kD>::at(ArrivalPlace<kD>::channel_step(k)) + j];
  }
};

/// The sign bits of one unit, for unpack().
struct UnitSigns {
  const std::uint32_t* first;

  __device__ std::uint32_t operator()(int, int j) const { return first[j]; }
};

/// As ThreadSigns, from the bits themselves. FP32 rows of 256 channels leave no registers for sign
/// words on their way from shared memory; this needs one for eight channels, and a shift for each.
template <int kD>
struct ThreadSignBits {
  const SignBits& signs;
  const ArrivalPlace<kD>& at;
  std::uint32_t sign;  // 0 where nothing is rotated

  __device__ ThreadSignBits(const QuantizeArgs& args, const ArrivalPlace<kD>& at_)
      : signs(args.signs), at(at_), sign(ptx::opaque(args.rotate ? INT_MIN : 0)) {}

  __device__ std::uint32_t operator()(int i, int j) const {
    const int channel = at.channel(i);
    const auto bits = static_cast<std::uint32_t>(signs.word[channel / 64] >> channel % 64);
    return bits << (31 - j) & sign;
  }
};

__device__ inline void butterfly(float& a, float& b) {
  const float sum = __fadd_rn(a, b);
  b = __fsub_rn(a, b);
  a = sum;
}

/// Whether a rotated value of this channel has the wrong sign.
template <int kD>
__device__ constexpr bool rotation_flips(int channel) {
  const int bit8 = channel >> 3 & 1, bit16 = channel >> 4 & 1, bit32 = channel >> 5 & 1;
  return kExchanges<kD> && (bit16 & (bit8 ^ bit32)) != 0;
}

/// The sign bit of a rotated value of this channel that must be exchanged.
template <int kD>
__device__ std::uint32_t rotation_sign(const QuantizeArgs& args, int channel) {
  return args.rotate && rotation_flips<kD>(channel) ? 0x80000000u : 0;
}

/// The same of unit k of a row's thread l.
template <int kD>
__device__ std::uint32_t rotation_sign(const QuantizeArgs& args, int l, int k) {
  return kExchanges<kD> && args.rotate && l + k % 2 == 3 ? 0x80000000u : 0;
}

static_assert(
    [] {
      for (int channel = 0; channel < 256; ++channel) {
        const int unit = channel / kChannels, l = unit % kThreadsPerRow, k = unit / kThreadsPerRow;
        if (rotation_flips<256>(channel) != (l + k % 2 == 3)) return false;
      }
      return true;
    }(),
    "what a channel and its unit say of the sign must be the same");

__device__ inline float shuffle_xor(float x, int distance) {
  return __shfl_xor_sync(0xffffffffu, x, distance);
}

/// Distances 8, 16 and 32, of a row as it arrived; leaves it in RowPlace's order.
template <int kD>
__device__ void rotate_exchanging(int l, float (&x)[Rows<kD>::kUnits][kChannels]) {
  const float side8 = (l & 1) != 0 ? -1.0f : 1.0f, side16 = (l & 2) != 0 ? -1.0f : 1.0f;
#pragma unroll
  for (int k = 0; k < Rows<kD>::kUnits; k += 2) {
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      const float a = x[k][j], b = x[k + 1][j];
      const float keep8 = fmaf(b, side8, a), send8 = fmaf(b, -side8, a);
      const float other8 = shuffle_xor(send8, 1);
      const float keep16 = fmaf(other8, side16, keep8), send16 = fmaf(other8, -side16, keep8);
      const float other16 = shuffle_xor(send16, 2);
      x[k][j] = __fadd_rn(keep16, other16);
      x[k + 1][j] = __fsub_rn(keep16, other16);
    }
  }
}

/// Butterflies with the thread at `distance` of the row: a + b for the lower, a - b for the upper
/// one, both as own * +-1 + other.
template <int kD>
__device__ void rotate_across(int l, int distance, float (&x)[Rows<kD>::kUnits][kChannels]) {
  const float sign = (l & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
  for (auto& unit : x) {
#pragma unroll
    for (float& y : unit) y = fmaf(y, sign, shuffle_xor(y, distance));
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
#pragma unroll
  for (auto& x : rows.x) {
    if constexpr (kExchanges<kD>) {
      rotate_exchanging<kD>(l, x);
    } else {
      rotate_across<kD>(l, 1, x);
      rotate_across<kD>(l, 2, x);
    }
#pragma unroll
    for (int h = kExchanges<kD> ? 2 : 1; h < hadamard_size(kD) / (kChannels * kThreadsPerRow);
         h *= 2) {
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
