// SPDX-License-Identifier: Apache-2.0
// V's codes into V^T: [channels][128 key positions] bytes by way of shared memory.
//
// A thread writes four codes of one channel (its keys are neighbours in the key order) as one word,
// and reads back 16 bytes of a channel's row. Units of 16 bytes are exchanged by an XOR with
// channel / 8, so that the lanes of a row, 8 channels apart, do not meet in one bank.
#pragma once

#include "sm90/ptx/opaque.cuh"
#include "sm90/quantize/cast.cuh"

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
__device__ void store_transposed(const TransposeStorage<kD>& storage, std::uint8_t* out,
                                 std::int64_t pitch) {
  constexpr int kUnits = kTileRows / 16;
  const int thread = ptx::opaque(static_cast<int>(threadIdx.x));
  for (int i = thread; i < kD * kUnits; i += TileShape<kD>::kThreads) {
    const int channel = i / kUnits, unit = i % kUnits;
    const uint4 codes =
        *reinterpret_cast<const uint4*>(&storage.word[channel][swizzled_word(channel, 4 * unit)]);
    *reinterpret_cast<uint4*>(out + channel * pitch + unit * 16) = codes;
  }
}

}  // namespace octavo::sm90
