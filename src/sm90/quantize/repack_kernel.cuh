// SPDX-License-Identifier: Apache-2.0
// V that is FP8 already, row-major, into V^T in key order: bytes move, nothing is computed.
#pragma once

#include "sm90/quantize/transpose.cuh"

namespace octavo::sm90 {

/// One thread block a tile of 128 keys of one (batch, head), heads fastest.
template <int kD>
__global__ void __launch_bounds__(TileShape<kD>::kThreads)
    repack_kernel(const __grid_constant__ OperandArgs v) {
  __shared__ TransposeStorage<kD> storage;
  const int tiles = v.padded_rows / kTileRows, index = static_cast<int>(blockIdx.x);
  const int h = index % v.heads, first = index / v.heads % tiles * kTileRows;
  const std::int64_t b = index / v.heads / tiles;
  const Place<kD> at;
  const auto* base =
      static_cast<const std::uint8_t*>(v.x) + b * v.stride_b + h * v.stride_h + at.channel;
  if (at.active) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint8_t code[4][kChannels];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first + at.keys().base + KeyOrder::delta(4 * half + i);
        const bool inside = row < v.rows && at.channel < v.d;
#pragma unroll
        for (int j = 0; j < kChannels; ++j) code[i][j] = inside ? base[row * v.stride_s + j] : 0;
      }
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        const std::uint32_t word = code[0][j] | code[1][j] << 8 | code[2][j] << 16 |
                                   static_cast<std::uint32_t>(code[3][j]) << 24;
        put_word<kD>(storage, at.channel + j, at.row_lane + kRowLanes * half, word);
      }
    }
  }
  __syncthreads();
  store_transposed<kD>(storage, v.codes + (b * v.heads + h) * kD * v.padded_rows + first,
                       v.padded_rows);
}

}  // namespace octavo::sm90
