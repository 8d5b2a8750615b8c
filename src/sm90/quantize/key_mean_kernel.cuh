// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`, first half: K's mean of each (batch, kv head), in the order of core/key_mean.h.
// Elements that are not finite count as 0. A cluster of eight thread blocks has one head: block r
// sums chunks r, r + 8, .. and leaves their sums in the shared memory of block 0, which adds them
// up.
#pragma once

#include <cooperative_groups.h>

#include "sm90/quantize/rope.cuh"
#include "sm90/quantize/smooth.cuh"

namespace octavo::sm90 {

/// Adds a tile's rows, those before `end`, to this thread's running sums.
template <int kD, int kBytes, typename Embedding>
__device__ void add_tile(const Chunks<kBytes>& chunks, DType dtype, int first, int end,
                         const Embedding& embedding, const Place<kD>& at, float (&sum)[kChannels]) {
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    float x[kChannels];
    unpack<kBytes>(chunks.row[i], dtype, x);
    const int row = at.mean_rows().base + MeanOrder::delta(i);
    embedding.embed(at, row, x);
    if (first + row >= end) continue;
#pragma unroll
    for (int j = 0; j < kChannels; ++j) sum[j] = __fadd_rn(sum[j], isfinite(x[j]) ? x[j] : 0.0f);
  }
}

inline constexpr int kMeanCluster = 8;
static_assert(kMeanChunks % kMeanCluster == 0);

template <int kD, int kBytes, typename Embedding>
__global__ void __launch_bounds__(TileShape<kD>::kThreads, 1)
    key_mean_kernel(const __grid_constant__ QuantizeArgs args) {
  extern __shared__ __align__(16) char angles[];
  __shared__ float lanes[kRowLanes][kD];
  __shared__ float chunk_sum[kMeanChunks][kD];
  const auto cluster = cooperative_groups::this_cluster();
  const int head = static_cast<int>(blockIdx.x) / kMeanCluster;
  const int b = head / args.k.heads, h = head % args.k.heads;
  const int keys = valid_rows(args.k, args.lengths, b, false);
  const int chunk_rows = static_cast<int>(mean_chunk_rows(keys));
  const Place<kD> at;
  Embedding embedding(args.rope, angles);
  cluster.sync();  // block 0 must be running before the others write to it
  for (int chunk = static_cast<int>(cluster.block_rank()); chunk < kMeanChunks;
       chunk += kMeanCluster) {
    const int begin = chunk * chunk_rows, end = min(begin + chunk_rows, keys);
    float sum[kChannels] = {};
    // The next tile's rows are on their way while one is added; 4-byte ones would take too many
    // registers for that.
    constexpr int kAhead = kBytes == 2 ? kTileRows : 0;
    Chunks<kBytes> tile, next;
    const auto load = [&](int first, Chunks<kBytes>& chunks) {
      load_chunks<kBytes>(args.k, b, h, first, end, at.channel, at.mean_rows(), chunks);
    };
    if (kAhead > 0) load(begin, tile);
    for (int first = begin; first < end; first += kTileRows) {
      load(first + kAhead, kAhead > 0 ? next : tile);
      embedding.stage(args.rope.k_offset + first, end - first);
      add_tile<kD, kBytes>(tile, args.k.dtype, first, end, embedding, at, sum);
      if (kAhead > 0) tile = next;
    }
    if (at.active) {
#pragma unroll
      for (int j = 0; j < kChannels; ++j) lanes[at.row_lane][at.channel + j] = sum[j];
    }
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < kD; c += TileShape<kD>::kThreads) {
      *cluster.map_shared_rank(&chunk_sum[chunk][c], 0) = lane_tree<kD>(lanes, c);
    }
    __syncthreads();
  }
  cluster.sync();
  if (cluster.block_rank() != 0) return;
  for (int c = static_cast<int>(threadIdx.x); c < kD; c += TileShape<kD>::kThreads) {
    // Lane i has chunks i and i + 16; empty chunks are 0.
    for (int i = 0; i < kRowLanes; ++i)
      lanes[i][c] = __fadd_rn(chunk_sum[i][c], chunk_sum[i + kRowLanes][c]);
    const float sum = lane_tree<kD>(lanes, c);
    args.mean[static_cast<std::int64_t>(head) * kD + c] =
        keys == 0 ? 0.0f : __fdiv_rn(sum, static_cast<float>(keys));
  }
}

}  // namespace octavo::sm90
