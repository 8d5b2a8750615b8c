// SPDX-License-Identifier: Apache-2.0
// Q, K and V of one call in one launch: a thread block takes 128 rows of one (batch, head) through
// the stages rope, smooth, rotate, amax, scale, cast.
//
//   Q, K:  [rope] -> [smooth: K - mean] -> [rotate] -> amax -> scale -> cast -> rows
//   V:     amax -> scale -> cast -> V^T in key order
//
// Reads each element once, writes each code once. Rows past the valid length are written as code 0.
#pragma once

#include <algorithm>

#include "sm90/quantize/amax.cuh"
#include "sm90/quantize/rope.cuh"
#include "sm90/quantize/scale.cuh"
#include "sm90/quantize/smooth.cuh"
#include "sm90/quantize/transpose.cuh"

namespace octavo::sm90 {

/// Shared memory of a thread block with rows of Q or K.
template <int kD, int kBytes>
struct RowShared {
  static constexpr int kWarps = TileShape<kD>::kThreads / 32;
  RawRows<kD, kBytes> raw;
  union {
    MeanStorage<kD> mean;
    ExchangeRows<kD> exchange[kWarps];
  };
  PairConstants constants[kD / 2];
  float warp_max[kWarps];
};

/// The same with keys of V.
template <int kD>
struct KeyShared {
  TransposeStorage<kD> transpose;
  float warp_max[TileShape<kD>::kThreads / 32];
};

/// Thread blocks that must fit a multiprocessor: the angles of an embedding take the room of half.
template <int kD, typename Embedding>
constexpr int min_blocks() {
  constexpr int kMost = TileShape<kD>::kMinBlocks;
  return Embedding::kTurns && kMost > 1 ? kMost / 2 : kMost;
}

template <int kD, int kBytes>
constexpr std::size_t shared_bytes() {
  return std::max(sizeof(RowShared<kD, kBytes>), sizeof(KeyShared<kD>));
}

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

/// Scales of a thread's eight rows, one descale a row. Lane j of a row works out row j's pair of
/// divisions for all.
template <int kD, typename Order>
__device__ void token_scales(const OperandArgs& operand, const RowBlock& rows, const Place<kD>& at,
                             Order order, const float (&a)[kRowsPerThread],
                             float (&scale)[kRowsPerThread]) {
  const int mine = at.lane % kRowsPerThread;
  float amax = 0;
  int row = 0;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    const float row_max = lanes_max<kD>(a[i]);
    if (mine == i) {
      amax = row_max;
      row = rows.first + order.base + Order::delta(i);
    }
  }
  const ScalePair pair = scale_on_device(amax, operand.e5m2);
  if (at.lane < kRowsPerThread) *descale_entry(operand, rows, row, 1) = pair.descale;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    scale[i] = __shfl_sync(0xffffffffu, pair.scale, i, TileShape<kD>::kLanes);
  }
}

__device__ inline void same_scale(float value, float (&scale)[kRowsPerThread]) {
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) scale[i] = value;
}

/// Scales of a thread's rows of Q or K, by granularity; stores the descales.
template <int kD>
__device__ void row_scales(const OperandArgs& operand, const RowBlock& rows, const Place<kD>& at,
                           bool is_query, const float (&a)[kRowsPerThread], float* warp_max,
                           float (&scale)[kRowsPerThread]) {
  if (operand.granularity == Granularity::token) {
    return token_scales<kD>(operand, rows, at, at.rows(), a, scale);
  }
  ScalePair pair;
  if (operand.granularity == Granularity::block) {
    // A warp has neighbouring rows: half of the warps have one 64-row block of Q, all one of K.
    constexpr int kWarps = TileShape<kD>::kThreads / 32;
    const int block_rows = is_query ? kQuantBlockQ : kQuantBlockKv;
    const int block_warps = is_query ? kWarps / 2 : kWarps,
              first_warp = at.warp / block_warps * block_warps;
    pair = scale_on_device(warps_max(largest(a), warp_max, first_warp, block_warps), operand.e5m2);
    const int row = rows.first + first_warp / block_warps * block_rows;
    if (threadIdx.x == 32 * first_warp && row < operand.rows) {
      *block_descale(operand, rows, row, block_rows) = pair.descale;
    }
  } else {
    pair = scale_on_device(coarse_amax(operand, rows), operand.e5m2);
    store_coarse_descale(operand, rows, pair.descale);
  }
  same_scale(pair.scale, scale);
}

/// Fills the constants of all pairs of channels. All threads call; synchronises.
template <int kD>
__device__ void load_constants(const QuantizeArgs& args, const RowBlock& rows, const Place<kD>& at,
                               bool is_query, bool wants_mean, MeanStorage<kD>& mean,
                               PairConstants* constants) {
  if (wants_mean) {
    const std::int64_t kv_head =
        is_query ? static_cast<std::int64_t>(rows.b) * args.k.heads + rows.h / args.group
                 : rows.head;
    const int keys = is_query ? valid_rows(args.k, args.lengths, rows.b, false) : rows.valid;
    mean_of<kD>(args.mean_chunks + kv_head * kMeanChunks * kD, keys, at, mean);
  }
  constexpr float kNorm = hadamard_norm(hadamard_size(kD));
  for (int c = static_cast<int>(threadIdx.x); c < kD; c += TileShape<kD>::kThreads) {
    const float sign = args.signs.negative(c) ? -kNorm : kNorm;
    constants[c / 2].mean[c % 2] = wants_mean ? mean.mean[c] : 0.0f;
    constants[c / 2].sign[c % 2] = args.rotate ? sign : 1.0f;
  }
  __syncthreads();
}

/// The stages rope, smooth and the high half of rotate of eight rows of a warp: thread l of the
/// four of row `row` of the tile, from raw to exchange.
template <int kD, int kBytes, typename Embedding>
__device__ void high_half(const QuantizeArgs& args, const OperandArgs& operand,
                          const RowBlock& rows, bool is_query, const Embedding& embedding, int row,
                          int l, RowShared<kD, kBytes>& shared, float* exchange) {
  Pairs<kD> y;
  const char* raw = shared.raw.row[row];
  const bool is_bf16 = operand.dtype == DType::bf16;
#pragma unroll
  for (int i = 0; i < Pairs<kD>::kCount; ++i) {
    const float2 x = embedding.template pair<kBytes>(raw, i * kChannels + 2 * l, is_bf16, row);
    y.x[i][0] = x.x;
    y.x[i][1] = x.y;
  }
  if (is_query && args.score_shift != nullptr) {
    const float shift = dot_mean<kD>(y, shared.constants, l);
    if (l == 0 && rows.first + row < rows.valid) {
      args.score_shift[rows.head * operand.rows + rows.first + row] = shift;
    }
  }
  const bool smooth = !is_query && args.mean_chunks != nullptr && rows.first + row < rows.valid;
#pragma unroll
  for (int i = 0; i < Pairs<kD>::kCount; ++i) {
    const PairConstants c = shared.constants[i * kThreadsPerRow + l];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (smooth) y.x[i][j] = __fsub_rn(y.x[i][j], c.mean[j]);  // rows past the end stay 0
      y.x[i][j] = __fmul_rn(y.x[i][j], c.sign[j]);
    }
  }
  if (args.rotate) rotate_high(y);
#pragma unroll
  for (int i = 0; i < Pairs<kD>::kCount; ++i) {
    *reinterpret_cast<float2*>(exchange + i * kChannels + 2 * l) = {y.x[i][0], y.x[i][1]};
  }
}

/// Everything before amax on rows of Q or K: leaves them in registers.
template <int kD, int kBytes, typename Embedding>
__device__ void transform_rows(const QuantizeArgs& args, const OperandArgs& operand,
                               const RowBlock& rows, const Place<kD>& at, bool is_query,
                               const Embedding& embedding, RowShared<kD, kBytes>& shared,
                               Tile& tile) {
  copy_warp_rows(operand, rows.b, rows.h, rows.first, rows.valid, at.warp, shared.raw);
  const bool wants_mean = args.mean_chunks != nullptr && (!is_query || args.score_shift != nullptr);
  load_constants(args, rows, at, is_query, wants_mean, shared.mean, shared.constants);
  ptx::cp_async_wait_all();
  __syncwarp();

  using Order = WarpOrder<kD>;
  constexpr int kPasses = kRowsAtOnce / Order::kStep;  // of the low half, each a row a thread
  const int in_warp = static_cast<int>(threadIdx.x) % 32;
  ExchangeRows<kD>& exchange = shared.exchange[at.warp];
#pragma unroll
  for (int group = 0; group < Order::kWarpRows / kRowsAtOnce; ++group) {
    const int r = in_warp / kThreadsPerRow;
    const int row = at.warp * Order::kWarpRows + group * kRowsAtOnce + r;
    high_half<kD, kBytes>(args, operand, rows, is_query, embedding, row, in_warp % kThreadsPerRow,
                          shared, exchange.row[r]);
    __syncwarp();
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      float(&x)[kChannels] = tile.x[group * kPasses + pass];
      const float* from = exchange.row[pass * Order::kStep + in_warp / TileShape<kD>::kLanes] +
                          (at.active ? at.channel : 0);
      const float4 low = *reinterpret_cast<const float4*>(from);
      const float4 high = *reinterpret_cast<const float4*>(from + 4);
      x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
      x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
      if (args.rotate) rotate_low(x);
    }
    __syncwarp();
  }
}

template <int kD, int kBytes, typename Embedding>
__device__ void quantize_rows(const QuantizeArgs& args, const OperandArgs& operand,
                              const RowBlock& rows, bool is_query, const Embedding& embedding,
                              RowShared<kD, kBytes>& shared) {
  const Place<kD> at;
  Tile tile;
  transform_rows(args, operand, rows, at, is_query, embedding, shared, tile);
  float a[kRowsPerThread], scale[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) a[i] = row_amax(tile.x[i]);
  row_scales<kD>(operand, rows, at, is_query, a, shared.warp_max, scale);
  using Order = WarpOrder<kD>;
  const int row = rows.first + at.rows().base;
  std::uint8_t* codes = operand.codes + (rows.head * operand.padded_rows + row) * kD + at.channel;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    uint2 packed = cast_row(tile.x[i], scale[i], operand.e5m2);
    if (row + Order::delta(i) >= rows.valid) packed = {0, 0};
    if (at.active) *reinterpret_cast<uint2*>(codes + Order::delta(i) * kD) = packed;
  }
}

/// Scales of a thread's eight keys of V, by granularity; stores the descales.
template <int kD>
__device__ void key_scales(const OperandArgs& operand, const RowBlock& rows, const Place<kD>& at,
                           const float (&a)[kRowsPerThread], float* warp_max,
                           float (&scale)[kRowsPerThread]) {
  if (operand.granularity == Granularity::token) {
    return token_scales<kD>(operand, rows, at, at.keys(), a, scale);
  }
  ScalePair pair;
  if (operand.granularity == Granularity::block) {
    constexpr int kWarps = TileShape<kD>::kThreads / 32;
    pair = scale_on_device(warps_max(largest(a), warp_max, 0, kWarps), operand.e5m2);
    if (threadIdx.x == 0 && rows.first < operand.rows) {
      *block_descale(operand, rows, rows.first, kQuantBlockKv) = pair.descale;
    }
  } else {
    pair = scale_on_device(coarse_amax(operand, rows), operand.e5m2);
    store_coarse_descale(operand, rows, pair.descale);
  }
  same_scale(pair.scale, scale);
}

template <int kD, int kBytes>
__device__ void quantize_v(const OperandArgs& operand, const RowBlock& rows,
                           KeyShared<kD>& shared) {
  const Place<kD> at;
  Tile tile;
  load_tile<kBytes>(operand, rows.b, rows.h, rows.first, rows.valid, at.channel, at.keys(), tile);
  float a[kRowsPerThread], scale[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) a[i] = row_amax(tile.x[i]);
  key_scales<kD>(operand, rows, at, a, shared.warp_max, scale);
  if (at.active) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 4 * half, u = at.row_lane + kRowLanes * half;
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        float y[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) y[n] = __fmul_rn(tile.x[i + n][j], scale[i + n]);
        put_word<kD>(shared.transpose, at.channel + j, u,
                     cast4(y[0], y[1], y[2], y[3], operand.e5m2));
      }
    }
  }
  __syncthreads();
  std::uint8_t* out = operand.codes + rows.head * kD * operand.padded_rows + rows.first;
  store_transposed<kD>(shared.transpose, out, operand.padded_rows);
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

/// Dynamic shared memory: RowShared or KeyShared, then the embedding's angles.
template <int kD, int kBytes, typename Embedding>
__global__ void __launch_bounds__(TileShape<kD>::kThreads, min_blocks<kD, Embedding>())
    quantize_kernel(const __grid_constant__ QuantizeArgs args) {
  extern __shared__ __align__(16) char memory[];
  const Assignment mine(args);
  const OperandArgs& operand = mine.operand(args);
  const RowBlock rows = mine.rows(args);
  if (mine.role == Assignment::kValue) {
    quantize_v<kD, kBytes>(operand, rows, *reinterpret_cast<KeyShared<kD>*>(memory));
  } else {
    Embedding embedding(args.rope, memory + shared_bytes<kD, kBytes>());
    embedding.stage(mine.position(args, rows.first), operand.rows - rows.first);
    quantize_rows(args, operand, rows, mine.role == Assignment::kQuery, embedding,
                  *reinterpret_cast<RowShared<kD, kBytes>*>(memory));
  }
}

/// Coarse granularities only: amax of a head or the tensor, before the cast.
template <int kD, int kBytes, typename Embedding>
__global__ void __launch_bounds__(TileShape<kD>::kThreads, min_blocks<kD, Embedding>())
    amax_kernel(const __grid_constant__ QuantizeArgs args) {
  extern __shared__ __align__(16) char memory[];
  const Assignment mine(args);
  const OperandArgs& operand = mine.operand(args);
  if (operand.granularity != Granularity::head && operand.granularity != Granularity::tensor)
    return;
  const RowBlock rows = mine.rows(args);
  auto& shared = *reinterpret_cast<RowShared<kD, kBytes>*>(memory);
  const Place<kD> at;
  Tile tile;
  if (mine.role == Assignment::kValue) {
    load_tile<kBytes>(operand, rows.b, rows.h, rows.first, rows.valid, at.channel, at.mean_rows(),
                      tile);
  } else {
    Embedding embedding(args.rope, memory + shared_bytes<kD, kBytes>());
    embedding.stage(mine.position(args, rows.first), operand.rows - rows.first);
    transform_rows(args, operand, rows, at, mine.role == Assignment::kQuery, embedding, shared,
                   tile);
  }
  float a[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) a[i] = row_amax(tile.x[i]);
  const float most = warps_max(largest(a), shared.warp_max, 0, TileShape<kD>::kThreads / 32);
  if (threadIdx.x == 0) {
    float* out = operand.amax + (operand.granularity == Granularity::head ? rows.head : 0);
    atomicMax(reinterpret_cast<int*>(out), __float_as_int(most));  // orders as floats: most >= 0
  }
}

}  // namespace octavo::sm90
