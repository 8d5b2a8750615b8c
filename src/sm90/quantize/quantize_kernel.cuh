// SPDX-License-Identifier: Apache-2.0
// Q, K and V of one call in one launch: tiles of 128 rows of one (batch, head) go through the
// stages rope, smooth, rotate, amax, scale, cast.
//
//   Q, K:  [rope] -> [smooth: K - mean] -> [rotate] -> amax -> scale -> cast -> rows
//   V:     amax -> scale -> cast -> V^T in key order
//
// Each element is read once and each code written once. As many thread blocks as fit stay and take
// tile after tile, copying the next one's rows into shared memory meanwhile: the memory is never
// idle. Rows past the valid length are written as code 0.
#pragma once

#include "sm90/quantize/amax.cuh"
#include "sm90/quantize/rope.cuh"
#include "sm90/quantize/scale.cuh"
#include "sm90/quantize/smooth.cuh"
#include "sm90/quantize/transpose.cuh"

namespace octavo::sm90 {

enum class Role { query, key, value };

/// One tile: 128 rows of one (batch, head) of an operand. Worked out by one thread for all, since
/// it takes divisions.
struct RowBlock {
  Role role;
  int b, h, first, valid;  // first row; rows that count
  std::int64_t head;       // b * heads + h

  __device__ bool is_query() const { return role == Role::query; }
  __device__ const OperandArgs& operand(const QuantizeArgs& args) const {
    return role == Role::query ? args.q : (role == Role::key ? args.k : args.v);
  }
  /// Position of the first row in the embedding's tables.
  __device__ std::int64_t position(const QuantizeArgs& args) const {
    return (is_query() ? args.rope.q_offset : args.rope.k_offset) + first;
  }
};

/// Dynamic shared memory of a thread block; the angles of an embedding lie behind it. Rows of
/// 4-byte elements are exchanged where they lie, 2-byte ones beside it.
template <int kD, int kBytes>
struct Shared {
  static constexpr int kWarps = TileShape<kD>::kThreads / 32;
  static constexpr int kStages = kD <= 192 ? 2 : 1;  // tiles in shared memory: what 227 KB allow
  static constexpr bool kInPlace = kBytes == sizeof(float);
  RawRows<kD, kBytes> raw[kStages];
  union {
    ExchangeRows<kD> exchange[kInPlace ? 1 : kWarps];
    TransposeStorage<kD> transpose;
  };
  PairConstants constants[kD / 2];
  float warp_max[kWarps];
  RowBlock rows[3];

  /// Row `row` of the tile between the halves of the rotation; r: its place among the warp's eight.
  __device__ float* exchange_row(RawRows<kD, kBytes>& tile, int warp, int row, int r) {
    if constexpr (kInPlace) return reinterpret_cast<float*>(tile.row[row]);
    return exchange[warp].row[r];
  }
};

static_assert(sizeof(ExchangeRows<128>::row[0]) == sizeof(RawRows<128, 4>::row[0]));
static_assert(sizeof(Shared<192, 2>) < 227 * 1024 && sizeof(Shared<256, 2>) < 227 * 1024 &&
              sizeof(Shared<192, 4>) < 227 * 1024 && sizeof(Shared<256, 4>) < 227 * 1024);

/// Thread blocks that must fit a multiprocessor: angles of an embedding and 4-byte rows take the
/// room of half.
template <int kD, int kBytes, typename Embedding>
constexpr int min_blocks() {
  constexpr int kMost = TileShape<kD>::kMinBlocks;
  return (Embedding::kTurns || kBytes == 4) && kMost > 1 ? kMost / 2 : kMost;
}

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

/// Signs of all channels, and means of 0 for calls without smoothing. All threads call.
template <int kD>
__device__ void init_constants(const QuantizeArgs& args, PairConstants* constants) {
  constexpr float kNorm = hadamard_norm(hadamard_size(kD));
  for (int c = static_cast<int>(threadIdx.x); c < kD; c += TileShape<kD>::kThreads) {
    const float sign = args.signs.negative(c) ? -kNorm : kNorm;
    constants[c / 2].mean[c % 2] = 0.0f;
    constants[c / 2].sign[c % 2] = args.rotate ? sign : 1.0f;
  }
}

/// The mean that a tile of Q or K needs; null where it needs none.
__device__ inline const float* mean_of(const QuantizeArgs& args, const RowBlock& rows,
                                       bool is_query, int d) {
  if (args.mean == nullptr || (is_query && args.score_shift == nullptr)) return nullptr;
  const std::int64_t kv_head =
      is_query ? static_cast<std::int64_t>(rows.b) * args.k.heads + rows.h / args.group : rows.head;
  return args.mean + kv_head * d;
}

/// The stages rope, smooth and the high half of rotate of eight rows of a warp: thread l of the
/// four of row `row` of the tile, from raw to exchange.
template <int kD, int kBytes, typename From, typename Embedding>
__device__ void high_half(const QuantizeArgs& args, const OperandArgs& operand,
                          const RowBlock& rows, bool is_query, const Embedding& embedding, int row,
                          int l, Shared<kD, kBytes>& shared, const RawRows<kD, kBytes>& raw_rows,
                          float* exchange) {
  Pairs<kD> y;
  const char* raw = raw_rows.row[row];
#pragma unroll
  for (int i = 0; i < Pairs<kD>::kCount; ++i) {
    const float2 x = embedding.template pair<kBytes, From>(raw, i * kChannels + 2 * l, row);
    y.x[i][0] = x.x;
    y.x[i][1] = x.y;
  }
  if (is_query && args.score_shift != nullptr) {
    const float shift = dot_mean<kD>(y, shared.constants, l);
    if (l == 0 && rows.first + row < rows.valid) {
      args.score_shift[rows.head * operand.rows + rows.first + row] = shift;
    }
  }
  const bool smooth = !is_query && args.mean != nullptr && rows.first + row < rows.valid;
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
  if constexpr (Shared<kD, kBytes>::kInPlace) __syncwarp();  // all four have read the row
#pragma unroll
  for (int i = 0; i < Pairs<kD>::kCount; ++i) {
    *reinterpret_cast<float2*>(exchange + i * kChannels + 2 * l) = {y.x[i][0], y.x[i][1]};
  }
}

/// Everything before amax on rows of Q or K: leaves them in registers.
template <int kD, int kBytes, typename From, typename Embedding>
__device__ void transform_rows(const QuantizeArgs& args, const OperandArgs& operand,
                               const RowBlock& rows, const Place<kD>& at, bool is_query,
                               const Embedding& embedding, RawRows<kD, kBytes>& raw,
                               Shared<kD, kBytes>& shared, Tile& tile) {
  using Order = WarpOrder<kD>;
  constexpr int kPasses = kRowsAtOnce / Order::kStep;  // of the low half, each a row a thread
  const int in_warp = at.thread % 32;
#pragma unroll
  for (int group = 0; group < Order::kWarpRows / kRowsAtOnce; ++group) {
    const int r = in_warp / kThreadsPerRow;
    const int row = at.warp * Order::kWarpRows + group * kRowsAtOnce + r;
    high_half<kD, kBytes, From>(args, operand, rows, is_query, embedding, row,
                                in_warp % kThreadsPerRow, shared, raw,
                                shared.exchange_row(raw, at.warp, row, r));
    __syncwarp();
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      float(&x)[kChannels] = tile.x[group * kPasses + pass];
      const int from_r = pass * Order::kStep + in_warp / TileShape<kD>::kLanes;
      const float* from = shared.exchange_row(raw, at.warp, row - r + from_r, from_r) +
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

/// What is done with a tile in registers: the cast ..
template <int kD, int kBytes>
struct CastTile {
  static __device__ void rows(const OperandArgs& operand, const RowBlock& rows, const Place<kD>& at,
                              bool is_query, const float (&a)[kRowsPerThread], const Tile& tile,
                              Shared<kD, kBytes>& shared) {
    float scale[kRowsPerThread];
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

  static __device__ void keys(const OperandArgs& operand, const RowBlock& rows, const Place<kD>& at,
                              const float (&a)[kRowsPerThread], const Tile& tile,
                              Shared<kD, kBytes>& shared) {
    float scale[kRowsPerThread];
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
};

/// .. or, for scales that span a head or the tensor, amax first.
template <int kD, int kBytes>
struct AmaxTile {
  static __device__ void keys(const OperandArgs& operand, const RowBlock& rows, const Place<kD>&,
                              const float (&a)[kRowsPerThread], const Tile&,
                              Shared<kD, kBytes>& shared) {
    if (operand.granularity != Granularity::head && operand.granularity != Granularity::tensor)
      return;
    const float most = warps_max(largest(a), shared.warp_max, 0, Shared<kD, kBytes>::kWarps);
    if (threadIdx.x != 0) return;
    float* out = operand.amax + (operand.granularity == Granularity::head ? rows.head : 0);
    atomicMax(reinterpret_cast<int*>(out), __float_as_int(most));  // orders as floats: most >= 0
  }
  static __device__ void rows(const OperandArgs& operand, const RowBlock& rows, const Place<kD>& at,
                              bool, const float (&a)[kRowsPerThread], const Tile& tile,
                              Shared<kD, kBytes>& shared) {
    keys(operand, rows, at, a, tile, shared);
  }
};

/// Tiles of one operand in this launch.
__host__ __device__ inline int tile_count(const OperandArgs& operand, int b) {
  return operand.x == nullptr ? 0 : operand.heads * (operand.padded_rows / kTileRows) * b;
}

__host__ __device__ inline int tile_count(const QuantizeArgs& args) {
  return tile_count(args.q, args.b) + tile_count(args.k, args.b) + tile_count(args.v, args.b);
}

/// Tile number `index` of the launch: Q, then K, then V; heads fastest.
__device__ inline RowBlock row_block(const QuantizeArgs& args, int index) {
  RowBlock rows;
  rows.role = Role::query;
  const int q_tiles = tile_count(args.q, args.b), k_tiles = tile_count(args.k, args.b);
  if (index >= q_tiles + k_tiles) {
    rows.role = Role::value;
    index -= q_tiles + k_tiles;
  } else if (index >= q_tiles) {
    rows.role = Role::key;
    index -= q_tiles;
  }
  const OperandArgs& operand = rows.operand(args);
  const int tiles = operand.padded_rows / kTileRows;
  rows.h = index % operand.heads;
  rows.first = index / operand.heads % tiles * kTileRows;
  rows.b = index / operand.heads / tiles;
  rows.valid = valid_rows(operand, args.lengths, rows.b, rows.is_query());
  rows.head = static_cast<std::int64_t>(rows.b) * operand.heads + rows.h;
  return rows;
}

/// One tile, from shared memory to its codes.
template <int kD, int kBytes, typename Embedding, template <int, int> class Finish>
__device__ void process_tile(const QuantizeArgs& args, const RowBlock& rows, Embedding& embedding,
                             RawRows<kD, kBytes>& raw, Shared<kD, kBytes>& shared) {
  const OperandArgs& operand = rows.operand(args);
  const bool is_query = rows.is_query();
  // Worked out anew for each tile: keeping what follows from it takes more registers than there
  // are.
  const Place<kD> at(ptx::opaque(static_cast<int>(threadIdx.x)));
  Tile tile;
  float a[kRowsPerThread];
  if (rows.role == Role::value) {
    read_rows(raw, at.keys(), at.active ? at.channel : 0, operand.dtype, tile);
  } else {
    embedding.stage(rows.position(args), operand.rows - rows.first);
    if (const float* mean = mean_of(args, rows, is_query, kD)) {
      for (int c = at.thread; c < kD; c += TileShape<kD>::kThreads) {
        shared.constants[c / 2].mean[c % 2] = mean[c];
      }
      __syncthreads();
    }
    if (kBytes == 4 || operand.dtype == DType::bf16) {
      transform_rows<kD, kBytes, FromBf16>(args, operand, rows, at, is_query, embedding, raw,
                                           shared, tile);
    } else {
      transform_rows<kD, kBytes, FromF16>(args, operand, rows, at, is_query, embedding, raw, shared,
                                          tile);
    }
  }
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) a[i] = at.active ? row_amax(tile.x[i]) : 0.0f;
  if (rows.role == Role::value) {
    Finish<kD, kBytes>::keys(operand, rows, at, a, tile, shared);
  } else {
    Finish<kD, kBytes>::rows(operand, rows, at, is_query, a, tile, shared);
  }
}

/// All tiles of a thread block, the next one's rows on their way while one is worked on. Blocks
/// take turns, so that those that run together read whole rows of [b, s, h, d] tensors; with an
/// embedding each takes a run of neighbours, heads of the same rows.
template <int kD, int kBytes, typename Embedding, template <int, int> class Finish>
__device__ void walk_tiles(const QuantizeArgs& args) {
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<Shared<kD, kBytes>*>(memory);
  Embedding embedding(args.rope, memory + sizeof(Shared<kD, kBytes>));
  const int tiles = tile_count(args), blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  const int run = (tiles + blocks - 1) / blocks;
  const int step = Embedding::kTurns ? 1 : blocks;
  const int end = Embedding::kTurns ? min((block + 1) * run, tiles) : tiles;
  int tile = Embedding::kTurns ? block * run : block;

  constexpr int kStages = Shared<kD, kBytes>::kStages;
  const Place<kD> at;
  // Tile number n of this block is in rows[n % 3]: one worked on, one being copied, one being
  // decoded.
  const auto decode = [&](int index, int slot) {
    if (threadIdx.x == 0 && index < end) shared.rows[slot] = row_block(args, index);
  };
  const auto copy = [&](int index, int slot, int stage) {
    if (index < end) {
      const RowBlock& rows = shared.rows[slot];
      copy_rows(rows.operand(args), rows.b, rows.h, rows.first, rows.valid, at, shared.raw[stage]);
    }
    ptx::cp_async_commit();
  };
  init_constants<kD>(args, shared.constants);
  decode(tile, 0);
  decode(tile + step, 1);
  __syncthreads();
  if constexpr (kStages == 2) copy(tile, 0, 0);
  for (int n = 0; tile < end; tile += step, ++n) {
    const int stage = n % kStages, ahead = kStages - 1;
    copy(tile + ahead * step, (n + ahead) % 3, (n + ahead) % kStages);
    decode(tile + 2 * step, (n + 2) % 3);
    ptx::cp_async_wait<kStages - 1>();
    __syncthreads();
    process_tile<kD, kBytes, Embedding, Finish>(args, shared.rows[n % 3], embedding,
                                                shared.raw[stage], shared);
    __syncthreads();  // raw[stage] and what lies beside it are free again
  }
}

template <int kD, int kBytes, typename Embedding>
__global__ void __launch_bounds__(TileShape<kD>::kThreads, min_blocks<kD, kBytes, Embedding>())
    quantize_kernel(const __grid_constant__ QuantizeArgs args) {
  walk_tiles<kD, kBytes, Embedding, CastTile>(args);
}

template <int kD, int kBytes, typename Embedding>
__global__ void __launch_bounds__(TileShape<kD>::kThreads, min_blocks<kD, kBytes, Embedding>())
    amax_kernel(const __grid_constant__ QuantizeArgs args) {
  walk_tiles<kD, kBytes, Embedding, AmaxTile>(args);
}

}  // namespace octavo::sm90
