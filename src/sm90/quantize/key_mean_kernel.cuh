// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`, first half: sums of K over at most 32 chunks of keys of each (batch, kv head), in
// the order of core/key_mean.h. Elements that are not finite count as 0.
#pragma once

#include "sm90/quantize/rope.cuh"
#include "sm90/quantize/smooth.cuh"

namespace octavo::sm90 {

/// Adds rows [first, end) of a tile to this thread's running sums.
template <int kD, int kBytes, typename Embedding>
__device__ void add_tile(const QuantizeArgs& args, int b, int head, int first, int end,
                         const Embedding& embedding, const Place<kD>& at, float (&sum)[kChannels]) {
  Tile tile;
  load_tile<kBytes>(args.k, b, head, first, end, at.channel, at.mean_rows(), tile);
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    embedding.embed(at, at.mean_rows().base + MeanOrder::delta(i), tile.x[i]);
    if (first + at.mean_rows().base + MeanOrder::delta(i) >= end) continue;
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      const float x = tile.x[i][j];
      sum[j] = __fadd_rn(sum[j], isfinite(x) ? x : 0.0f);
    }
  }
}

template <int kD, int kBytes, typename Embedding>
__global__ void __launch_bounds__(TileShape<kD>::kThreads, TileShape<kD>::kMinBlocks)
    key_mean_kernel(const __grid_constant__ QuantizeArgs args) {
  __shared__ float lanes[kRowLanes][kD];
  const int index = static_cast<int>(blockIdx.x);
  const int h = index % args.k.heads;
  const int chunk = index / args.k.heads % static_cast<int>(kMeanChunks);
  const int b = index / args.k.heads / static_cast<int>(kMeanChunks);
  const int keys = valid_rows(args.k, args.lengths, b, false);
  const int chunk_rows = static_cast<int>(mean_chunk_rows(keys));
  const int begin = chunk * chunk_rows, end = min(begin + chunk_rows, keys);
  if (begin >= keys) return;

  const Place<kD> at;
  extern __shared__ __align__(16) char angles[];
  Embedding embedding(args.rope, angles);
  float sum[kChannels] = {};
  for (int first = begin; first < end; first += kTileRows) {
    embedding.stage(args.rope.k_offset + first, end - first);
    add_tile<kD, kBytes>(args, b, h, first, end, embedding, at, sum);
  }
  if (at.active) {
#pragma unroll
    for (int j = 0; j < kChannels; ++j) lanes[at.row_lane][at.channel + j] = sum[j];
  }
  __syncthreads();
  float* out = args.mean_chunks +
               ((static_cast<std::int64_t>(b) * args.k.heads + h) * kMeanChunks + chunk) * kD;
  for (int c = static_cast<int>(threadIdx.x); c < kD; c += TileShape<kD>::kThreads) {
    out[c] = lane_tree<kD>(lanes, c);
  }
}

}  // namespace octavo::sm90
