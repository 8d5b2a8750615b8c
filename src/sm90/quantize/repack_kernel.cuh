// SPDX-License-Identifier: Apache-2.0
// V that is FP8 already, row-major, into V^T in key order: bytes move, nothing is computed.
#pragma once

#include "sm90/quantize/transpose.cuh"

namespace octavo::sm90 {

/// One thread block a tile; runs of one head. Keys past a batch entry's length become code 0,
/// whatever bytes stand there: 0 * NaN must not reach an output.
template <int kD>
__global__ void __launch_bounds__(TileShape<kD>::kThreads)
    repack_kernel(const __grid_constant__ QuantizeArgs args) {
  __shared__ TransposeStorage<kD> storage;
  const OperandArgs& v = args.v;
  const RowBlock rows = key_block(v, args.lengths, static_cast<int>(blockIdx.x));
  const KeyPatches<kD> at;
  const auto* base = static_cast<const std::uint8_t*>(v.x) + rows.b * v.stride_b +
                     rows.first * v.stride_s + rows.h * v.stride_h;
#pragma unroll
  for (int p = 0; p < KeyPatches<kD>::kCount; ++p) {
    if (!at.active(p)) continue;
    std::uint8_t code[kPatchKeys][kChannels];
#pragma unroll
    for (int n = 0; n < kPatchKeys; ++n) {
      const bool inside = at.row(n) < rows.valid && at.patch(p) < v.d;
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        code[n][j] = inside ? base[at.row(n) * v.stride_s + at.patch(p) + j] : 0;
      }
    }
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      const std::uint32_t word = code[0][j] | code[1][j] << 8 | code[2][j] << 16 |
                                 static_cast<std::uint32_t>(code[3][j]) << 24;
      put_word<kD>(storage, at.patch(p) + j, at.u, word);
    }
  }
  __syncthreads();
  store_transposed<kD>(storage, at.thread,
                       v.codes + std::int64_t{rows.head} * kD * v.padded_rows + rows.first,
                       v.padded_rows);
}

}  // namespace octavo::sm90
