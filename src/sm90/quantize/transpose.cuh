// SPDX-License-Identifier: Apache-2.0
// V's codes into V^T: [channels][128 key positions] bytes by way of shared memory.
//
// A thread writes four codes of one channel (its keys are neighbours in the key order) as one word,
// and reads back 16 bytes of a channel's row. Units of 16 bytes are exchanged by an XOR with
// channel / 8, so that the threads of a key, 8 channels apart, do not meet in one bank.
#pragma once

#include "sm90/quantize/row_tile.cuh"

namespace octavo::sm90 {

template <int kD>
struct TransposeStorage {
  alignas(16) std::uint32_t word[kD][kTileRows / 4];
};

__device__ inline int swizzled_word(int channel, int word) {
  return word ^ (((channel / kChannels) & 7) << 2);
}

/// Word `u` (positions 4 u .. 4 u + 3) of a channel.
template <int kD>
__device__ void put_word(TransposeStorage<kD>& storage, int channel, int u, std::uint32_t codes) {
  storage.word[channel][swizzled_word(channel, u)] = codes;
}

/// All of the tile to out[channel * pitch + position]. Call after a __syncthreads.
template <int kD>
__device__ void store_transposed(const TransposeStorage<kD>& storage, int thread, std::uint8_t* out,
                                 int pitch) {
  constexpr int kUnits = kTileRows / 16, kThreads = TileShape<kD>::kThreads;
  static_assert(kThreads % kUnits == 0 && kD * kUnits % kThreads % kUnits == 0);
  const int unit = thread % kUnits;
  out += unit * 16;
#pragma unroll
  for (int i = 0; i < kD * kUnits; i += kThreads) {
    const int channel = (thread + i) / kUnits;
    if (kD * kUnits % kThreads != 0 && channel >= kD) break;
    const uint4 codes =
        *reinterpret_cast<const uint4*>(&storage.word[channel][swizzled_word(channel, 4 * unit)]);
    *reinterpret_cast<uint4*>(out + std::int64_t{channel} * pitch) = codes;
  }
}

}  // namespace octavo::sm90
