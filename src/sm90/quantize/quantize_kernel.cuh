// SPDX-License-Identifier: Apache-2.0
// Q, K and V of one call in one launch: a thread block takes 128 rows of one (batch, head) through
// the stages rope, smooth, rotate, amax, scale, cast.
//
//   Q, K:  [rope] -> [smooth: K - mean] -> [rotate] -> amax -> scale -> cast -> rows
//   V:     amax -> scale -> cast -> V^T in key order
//
// Reads each element once, writes each code once. Rows past the valid length are written as code 0.
#pragma once

#include "sm90/quantize/amax.cuh"
#include "sm90/quantize/rope.cuh"
#include "sm90/quantize/rotate.cuh"
#include "sm90/quantize/scale.cuh"
#include "sm90/quantize/smooth.cuh"
#include "sm90/quantize/transpose.cuh"

namespace octavo::sm90 {

template <int kD>
union QuantizeStorage {
  MeanStorage<kD> mean;
  TransposeStorage<kD> transpose;
  __device__ QuantizeStorage() {}
};

template <int kD>
struct QuantizeShared {
  QuantizeStorage<kD> stage;
  float warp_max[2][TileShape<kD>::kThreads / 32];
};

/// Which tile a thread block has: heads fastest, so that blocks that run together read whole rows
/// of [b, s, h, d] tensors, and a cluster holds heads of the same rows.
struct TileIndex {
  int b, h, first;  // first row

  __device__ TileIndex(const OperandArgs& operand, int index) {
    const int tiles = operand.padded_rows / kTileRows;
    h = index % operand.heads;
    first = index / operand.heads % tiles * kTileRows;
    b = index / operand.heads / tiles;
  }
};

/// What all threads know about the rows they quantise.
struct RowBlock {
  int b, h, first, valid;
  std::int64_t head;  // b * heads + h

  __device__ RowBlock(const OperandArgs& operand, int b_, int h_, int first_, int valid_)
      : b(b_),
        h(h_),
        first(first_),
        valid(valid_),
        head(static_cast<std::int64_t>(b_) * operand.heads + h_) {}
};

__device__ inline float* descale_entry(const OperandArgs& operand, const RowBlock& rows, int row,
                                       int rows_per_entry) {
  return operand.descale + rows.head * (operand.padded_rows / rows_per_entry) +
         row / rows_per_entry;
}

/// Descales of blocks count the rows that exist, not the padded ones.
__device__ inline float* block_descale(const OperandArgs& operand, const RowBlock& rows, int row,
                                       int block_rows) {
  const int blocks = (operand.rows + block_rows - 1) / block_rows;
  return operand.descale + rows.head * blocks + row / block_rows;
}

__device__ inline float coarse_amax(const OperandArgs& operand, const RowBlock& rows) {
  return operand.amax[operand.granularity == Granularity::head ? rows.head : 0];
}

__device__ inline void store_coarse_descale(const OperandArgs& operand, const RowBlock& rows,
                                            float descale) {
  if (threadIdx.x != 0 || rows.first != 0) return;
  if (operand.granularity == Granularity::head) {
    operand.descale[rows.head] = descale;
  } else if (rows.head == 0) {
    operand.descale[0] = descale;
  }
}

/// The scale of each of a thread's rows of Q or K, by granularity; stores the descales.
template <int kD>
__device__ void row_scales(const OperandArgs& operand, const RowBlock& rows, const Place<kD>& at,
                           bool is_query, Tile& tile,
                           float (*warp_max)[TileShape<kD>::kThreads / 32],
                           float (&scale)[kRowsPerThread]) {
  float a[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) a[i] = row_amax(tile.x[i]);

  if (operand.granularity == Granularity::token) {
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const ScalePair pair = scale_on_device(lanes_max<kD>(a[i]), operand.e5m2);
      scale[i] = pair.scale;
      const int row = rows.first + at.rows().base + RowOrder::delta(i);
      if (at.lane == 0) *descale_entry(operand, rows, row, 1) = pair.descale;
    }
    return;
  }
  if (operand.granularity == Granularity::block) {
    // Two halves of 64 rows for Q, one block of 128 for K.
    float low = 0, high = 0;
#pragma unroll
    for (int i = 0; i < kRowsPerThread / 2; ++i) {
      low = fmaxf(low, a[i]);
      high = fmaxf(high, a[i + kRowsPerThread / 2]);
    }
    low = block_max<kD>(low, warp_max[0]);
    high = block_max<kD>(high, warp_max[1]);
    if (!is_query) low = high = fmaxf(low, high);
    const ScalePair pair[2] = {scale_on_device(low, operand.e5m2),
                               scale_on_device(high, operand.e5m2)};
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) scale[i] = pair[i / (kRowsPerThread / 2)].scale;
    const int block_rows = is_query ? kQuantBlockQ : kQuantBlockKv;
    const int half = static_cast<int>(threadIdx.x);
    if (half < kTileRows / block_rows && rows.first + half * block_rows < operand.rows) {
      *block_descale(operand, rows, rows.first + half * block_rows, block_rows) =
          pair[half].descale;
    }
    return;
  }
  const ScalePair pair = scale_on_device(coarse_amax(operand, rows), operand.e5m2);
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) scale[i] = pair.scale;
  store_coarse_descale(operand, rows, pair.descale);
}

/// Takes K's mean from its rows, or notes q . mean of each row of Q. Synchronises.
template <int kD>
__device__ void smooth_rows(const QuantizeArgs& args, const OperandArgs& operand,
                            const RowBlock& rows, const Place<kD>& at, bool is_query, Tile& tile,
                            MeanStorage<kD>& storage) {
  const std::int64_t kv_head =
      is_query ? static_cast<std::int64_t>(rows.b) * args.k.heads + rows.h / args.group : rows.head;
  const int keys = is_query ? valid_rows(args.k, args.lengths, rows.b, false) : rows.valid;
  mean_of<kD>(args.mean_chunks + kv_head * kMeanChunks * kD, keys, at, storage);
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    const int row = rows.first + at.rows().base + RowOrder::delta(i);
    if (is_query) {
      const float shift = dot_mean<kD>(tile.x[i], storage.mean, at);
      if (at.lane == 0 && row < rows.valid)
        args.score_shift[rows.head * operand.rows + row] = shift;
    } else if (at.active && row < rows.valid) {  // rows past the end stay 0
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        tile.x[i][j] = __fsub_rn(tile.x[i][j], storage.mean[at.channel + j]);
      }
    }
  }
}

/// The stages before amax on rows of Q or K, in registers.
template <int kD, int kBytes, typename Embedding>
__device__ void transform_rows(const QuantizeArgs& args, const OperandArgs& operand,
                               const RowBlock& rows, const Place<kD>& at, bool is_query,
                               const Embedding& embedding, Tile& tile, MeanStorage<kD>& storage) {
  load_tile<kBytes>(operand, rows.b, rows.h, rows.first, rows.valid, at.channel, at.rows(), tile);
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i)
    embedding.embed(at, at.rows().base + RowOrder::delta(i), tile.x[i]);
  if (args.mean_chunks != nullptr && (!is_query || args.score_shift != nullptr)) {
    smooth_rows<kD>(args, operand, rows, at, is_query, tile, storage);
  }
  if (args.rotate) {
    float sign[kChannels];
    load_signs(args.signs, at.active ? at.channel : 0, sign);
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) rotate_row<kD>(tile.x[i], sign, at.lane);
  }
}

template <int kD, int kBytes, typename Embedding>
__device__ void quantize_rows(const QuantizeArgs& args, const OperandArgs& operand,
                              const RowBlock& rows, bool is_query, const Embedding& embedding,
                              QuantizeShared<kD>& shared) {
  const Place<kD> at;
  Tile tile;
  transform_rows<kD, kBytes>(args, operand, rows, at, is_query, embedding, tile, shared.stage.mean);
  float scale[kRowsPerThread];
  row_scales<kD>(operand, rows, at, is_query, tile, shared.warp_max, scale);
  std::uint8_t* codes = operand.codes +
                        (rows.head * operand.padded_rows + rows.first + at.rows().base) * kD +
                        at.channel;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    uint2 packed = cast_row(tile.x[i], scale[i], operand.e5m2);
    if (rows.first + at.rows().base + RowOrder::delta(i) >= rows.valid) packed = {0, 0};
    if (at.active) *reinterpret_cast<uint2*>(codes + RowOrder::delta(i) * kD) = packed;
  }
}

/// The scale of each of a thread's eight keys of V, by granularity; stores the descales.
template <int kD>
__device__ void key_scales(const OperandArgs& operand, const RowBlock& rows, const Place<kD>& at,
                           Tile& tile, float* warp_max, float (&scale)[kRowsPerThread]) {
  float a[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) a[i] = row_amax(tile.x[i]);
  if (operand.granularity == Granularity::token) {
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const ScalePair pair = scale_on_device(lanes_max<kD>(a[i]), operand.e5m2);
      scale[i] = pair.scale;
      const int row = rows.first + at.keys().base + KeyOrder::delta(i);
      if (at.lane == 0) *descale_entry(operand, rows, row, 1) = pair.descale;
    }
    return;
  }
  ScalePair pair;
  if (operand.granularity == Granularity::block) {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) largest = fmaxf(largest, a[i]);
    pair = scale_on_device(block_max<kD>(largest, warp_max), operand.e5m2);
    if (threadIdx.x == 0 && rows.first < operand.rows) {
      *block_descale(operand, rows, rows.first, kQuantBlockKv) = pair.descale;
    }
  } else {
    pair = scale_on_device(coarse_amax(operand, rows), operand.e5m2);
    store_coarse_descale(operand, rows, pair.descale);
  }
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) scale[i] = pair.scale;
}

template <int kD, int kBytes>
__device__ void quantize_v(const OperandArgs& operand, const RowBlock& rows,
                           QuantizeShared<kD>& shared) {
  const Place<kD> at;
  Tile tile;
  load_tile<kBytes>(operand, rows.b, rows.h, rows.first, rows.valid, at.channel, at.keys(), tile);
  float scale[kRowsPerThread];
  key_scales<kD>(operand, rows, at, tile, shared.warp_max[0], scale);
  if (at.active) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 4 * half, u = at.row_lane + kRowLanes * half;
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        put_word<kD>(
            shared.stage.transpose, at.channel + j, u,
            cast4(__fmul_rn(tile.x[i][j], scale[i]), __fmul_rn(tile.x[i + 1][j], scale[i + 1]),
                  __fmul_rn(tile.x[i + 2][j], scale[i + 2]),
                  __fmul_rn(tile.x[i + 3][j], scale[i + 3]), operand.e5m2));
      }
    }
  }
  __syncthreads();
  std::uint8_t* out = operand.codes + rows.head * kD * operand.padded_rows + rows.first;
  store_transposed<kD>(shared.stage.transpose, out, operand.padded_rows);
}

/// Thread blocks of one operand in this launch.
__host__ __device__ inline int tile_count(const OperandArgs& operand, int b) {
  return operand.x == nullptr ? 0 : operand.heads * (operand.padded_rows / kTileRows) * b;
}

/// The operand and tile that a thread block has.
struct Assignment {
  enum Role { kQuery, kKey, kValue } role = kQuery;
  int index;  // among the operand's tiles

  __device__ explicit Assignment(const QuantizeArgs& args) : index(static_cast<int>(blockIdx.x)) {
    const int q_tiles = tile_count(args.q, args.b), k_tiles = tile_count(args.k, args.b);
    if (index < q_tiles) return;
    index -= q_tiles;
    role = kKey;
    if (index < k_tiles) return;
    index -= k_tiles;
    role = kValue;
  }
  __device__ const OperandArgs& operand(const QuantizeArgs& args) const {
    return role == kQuery ? args.q : (role == kKey ? args.k : args.v);
  }
  __device__ RowBlock rows(const QuantizeArgs& args) const {
    const TileIndex tile(operand(args), index);
    return RowBlock(operand(args), tile.b, tile.h, tile.first,
                    valid_rows(operand(args), args.lengths, tile.b, role == kQuery));
  }
  /// Position of row `first` in the embedding's tables.
  __device__ std::int64_t position(const QuantizeArgs& args, int first) const {
    return (role == kQuery ? args.rope.q_offset : args.rope.k_offset) + first;
  }
};

template <int kD, int kBytes, typename Embedding>
__global__ void __launch_bounds__(TileShape<kD>::kThreads, TileShape<kD>::kMinBlocks)
    quantize_kernel(const __grid_constant__ QuantizeArgs args) {
  __shared__ QuantizeShared<kD> shared;
  const Assignment mine(args);
  const OperandArgs& operand = mine.operand(args);
  const RowBlock rows = mine.rows(args);
  if (mine.role == Assignment::kValue) {
    quantize_v<kD, kBytes>(operand, rows, shared);
  } else {
    Embedding embedding(args.rope);
    embedding.stage(mine.position(args, rows.first), operand.rows - rows.first);
    quantize_rows<kD, kBytes>(args, operand, rows, mine.role == Assignment::kQuery, embedding,
                              shared);
  }
}

/// Coarse granularities only: amax of a head or the tensor, before the cast.
template <int kD, int kBytes, typename Embedding>
__global__ void __launch_bounds__(TileShape<kD>::kThreads, TileShape<kD>::kMinBlocks)
    amax_kernel(const __grid_constant__ QuantizeArgs args) {
  __shared__ QuantizeShared<kD> shared;
  const Assignment mine(args);
  const OperandArgs& operand = mine.operand(args);
  if (operand.granularity != Granularity::head && operand.granularity != Granularity::tensor)
    return;
  const RowBlock rows = mine.rows(args);
  const Place<kD> at;
  Tile tile;
  if (mine.role == Assignment::kValue) {
    load_tile<kBytes>(operand, rows.b, rows.h, rows.first, rows.valid, at.channel, at.rows(), tile);
  } else {
    Embedding embedding(args.rope);
    embedding.stage(mine.position(args, rows.first), operand.rows - rows.first);
    transform_rows<kD, kBytes>(args, operand, rows, at, mine.role == Assignment::kQuery, embedding,
                               tile, shared.stage.mean);
  }
  float a = 0;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) a = fmaxf(a, row_amax(tile.x[i]));
  a = block_max<kD>(a, shared.warp_max[0]);
  if (threadIdx.x == 0) {
    float* out = operand.amax + (operand.granularity == Granularity::head ? rows.head : 0);
    atomicMax(reinterpret_cast<int*>(out), __float_as_int(a));  // orders as floats: a >= 0
  }
}

}  // namespace octavo::sm90
