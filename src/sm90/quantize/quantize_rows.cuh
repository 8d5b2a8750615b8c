// SPDX-License-Identifier: Apache-2.0
// A tile of Q or K: [rope] -> [smooth] -> [rotate] -> amax -> scale -> cast, all in the registers
// of the thread that loaded it.
#pragma once

#include "sm90/ptx/grid_dependency.cuh"
#include "sm90/ptx/opaque.cuh"
#include "sm90/quantize/amax.cuh"
#include "sm90/quantize/cast.cuh"
#include "sm90/quantize/rope.cuh"
#include "sm90/quantize/scale.cuh"
#include "sm90/quantize/smooth.cuh"

namespace octavo::sm90 {

/// What a tile of Q or K finds in shared memory.
template <int kD>
struct RowShared {
  ChannelConstants<kD> signs;
  ChannelConstants<kD> mean[kMostHeads];  // of each head of the run
  float warp_max[2][TileShape<kD>::kWarps];
};

/// What differs between Q and K.
struct Query {
  static constexpr int kBlockRows = kQuantBlockQ;

  static __device__ const OperandArgs& operand(const QuantizeArgs& args) { return args.q; }
  static __device__ std::int64_t position(const QuantizeArgs& args) { return args.rope.q_offset; }
  static __device__ RowBlock rows(const QuantizeArgs& args, int block) {
    return row_block(args.q, block);
  }
  static __device__ int mean_head(const QuantizeArgs& args, int h) {
    return args.by_group.quotient(h);
  }
  /// Leaves q . mean, which smoothing takes from every score of a row.
  template <int kD>
  static __device__ void smooth(const QuantizeArgs& args, const RowBlock& rows,
                                const RowPlace<kD>& at, const ChannelConstants<kD>& mean,
                                Rows<kD>& values) {
    float shift[Rows<kD>::kCount];
    dot_mean<kD>(at, mean, values, shift);
    float* out = args.score_shift + std::int64_t{rows.head} * args.q.rows + rows.first;
#pragma unroll
    for (int i = 0; i < Rows<kD>::kCount; ++i) {
      if (at.l == 0 && at.row(i) < rows.valid) out[at.row(i)] = shift[i];
    }
  }
};

struct Key {
  static constexpr int kBlockRows = kQuantBlockKv;

  static __device__ const OperandArgs& operand(const QuantizeArgs& args) { return args.k; }
  static __device__ std::int64_t position(const QuantizeArgs& args) { return args.rope.k_offset; }
  static __device__ RowBlock rows(const QuantizeArgs& args, int block) {
    return key_block(args.k, args.lengths, block);
  }
  static __device__ int mean_head(const QuantizeArgs&, int h) { return h; }
  template <int kD>
  static __device__ void smooth(const QuantizeArgs&, const RowBlock&, const RowPlace<kD>& at,
                                const ChannelConstants<kD>& mean, Rows<kD>& values) {
    subtract_mean<kD>(at, mean, values);
  }
};

/// Scales of a thread's rows, by granularity; stores the descales.
template <int kD, typename Operand>
__device__ void row_scales(const OperandArgs& operand, const RowBlock& rows, const RowPlace<kD>& at,
                           const float (&a)[Rows<kD>::kCount], float* warp_max,
                           float (&scale)[Rows<kD>::kCount]) {
  if (operand.granularity == Granularity::token) {
#pragma unroll
    for (int i = 0; i < Rows<kD>::kCount; ++i) {
      const ScalePair pair = scale_on_device(row_max(a[i]), operand.e5m2);
      if (at.l == 0) *token_descale(operand, rows, at.row(i)) = pair.descale;
      scale[i] = pair.scale;
    }
  } else if (operand.granularity == Granularity::block) {
    constexpr int kRows = Operand::kBlockRows, kWarps = TileShape<kD>::kWarps * kRows / kTileRows;
    const float most = warps_max<kWarps>(largest(a), warp_max, at.thread);
    const ScalePair pair = scale_on_device(most, operand.e5m2);
    same_scale(pair.scale, scale);
    const int first = rows.first + at.thread / (32 * kWarps) * kRows;
    if (at.thread % (32 * kWarps) == 0 && first < operand.rows) {
      *block_descale(operand, rows, first, kRows) = pair.descale;
    }
  } else {
    same_scale(coarse_scale(operand, rows), scale);
  }
}

template <int kD, typename Format>
__device__ void cast_rows(const OperandArgs& operand, const RowBlock& rows, const RowPlace<kD>& at,
                          const Rows<kD>& values, const float (&scale)[Rows<kD>::kCount]) {
  std::uint8_t* codes =
      operand.codes + (std::int64_t{rows.head} * operand.padded_rows + rows.first + at.first) * kD +
      at.first_channel();
  constexpr int kTogether = RowPlace<kD>::kPairs ? 2 : 1;
#pragma unroll
  for (int i = 0; i < Rows<kD>::kCount; ++i) {
    const bool valid = at.row(i) < rows.valid;
#pragma unroll
    for (int k = 0; k < Rows<kD>::kUnits; k += kTogether) {
      uint2 unit[kTogether];
#pragma unroll
      for (int n = 0; n < kTogether; ++n) {
        unit[n] = cast_unit<Format>(values.x[i][k + n], scale[i]);
        if (!valid) unit[n] = {0, 0};
      }
      std::uint8_t* to = codes + i * kRowsAtOnce * kD + RowPlace<kD>::channel_step(k);
      if constexpr (kTogether == 2) {
        *reinterpret_cast<uint4*>(to) = {unit[0].x, unit[0].y, unit[1].x, unit[1].y};
      } else {
        *reinterpret_cast<uint2*>(to) = unit[0];
      }
    }
  }
}

/// What is done with a tile in registers: the cast ..
struct CastRows {
  template <int kD, typename Operand>
  static __device__ void finish(const OperandArgs& operand, const RowBlock& rows,
                                const RowPlace<kD>& at, const float (&a)[Rows<kD>::kCount],
                                const Rows<kD>& values, float* warp_max) {
    float scale[Rows<kD>::kCount];
    row_scales<kD, Operand>(operand, rows, at, a, warp_max, scale);
    if (ptx::opaque(operand.e5m2)) {
      cast_rows<kD, E5m2>(operand, rows, at, values, scale);
    } else {
      cast_rows<kD, E4m3>(operand, rows, at, values, scale);
    }
  }
};

/// .. or, for scales that span a head or the tensor, amax first.
struct AmaxRows {
  template <int kD, typename Operand>
  static __device__ void finish(const OperandArgs& operand, const RowBlock& rows,
                                const RowPlace<kD>& at, const float (&a)[Rows<kD>::kCount],
                                const Rows<kD>&, float* warp_max) {
    if (!is_coarse(operand)) return;
    const float most = warps_max<TileShape<kD>::kWarps>(largest(a), warp_max, at.thread);
    if (threadIdx.x == 0) add_coarse_amax(operand, rows, most);
  }
};

/// Everything before amax.
template <int kD, int kBytes, typename Operand, typename Embedding>
__device__ void transform_rows(const QuantizeArgs& args, const RowBlock& rows,
                               const RowPlace<kD>& at, const Embedding& embedding,
                               const RowShared<kD>& shared, int turn, Rows<kD>& values) {
  const OperandArgs& operand = Operand::operand(args);
#pragma unroll
  for (int i = 0; i < Rows<kD>::kCount; ++i) {
    embedding.template turn<kD, kBytes>(operand, rows, at, at.row(i), values.x[i]);
  }
  if (args.mean != nullptr) {
    Operand::template smooth<kD>(args, rows, at, shared.mean[turn], values);
  }
  if (args.rotate) apply_signs<kD>(at, shared.signs, values);
  if (args.rotate) rotate_rows<kD>(at.l, values);
}

/// The means that a run of heads needs. All threads call; a barrier must follow.
template <int kD, typename Operand>
__device__ void load_means(const QuantizeArgs& args, const RowBlock& rows, RowShared<kD>& shared) {
  if (args.mean == nullptr) return;
  for (int i = static_cast<int>(threadIdx.x); i < Operand::operand(args).run * kD;
       i += TileShape<kD>::kThreads) {
    const int h = i / kD, c = i % kD;
    const std::int64_t head =
        std::int64_t{rows.b} * args.k.heads + Operand::mean_head(args, rows.h + h);
    shared.mean[h].value[shared.signs.at(c)] = args.mean[head * kD + c];
  }
}

/// A thread block's run of heads of Q or K.
template <int kD, int kBytes, typename Operand, typename Embedding, typename Finish>
__device__ void walk_rows(const QuantizeArgs& args, int block, uint4* slots, RowShared<kD>& shared,
                          const Embedding& embedding) {
  using Load = Loader<kD, kBytes, RowPlace<kD>>;
  const OperandArgs& operand = Operand::operand(args);
  RowBlock rows = Operand::rows(args, block);
  Load loader(operand, rows, slots);
  loader.start();
  init_signs<kD>(args.signs, shared.signs);
  embedding.stage(Operand::position(args) + rows.first, operand.rows - rows.first);
  ptx::wait_for_launch_before();  // the mean
  load_means<kD, Operand>(args, rows, shared);
  __syncthreads();
  for (int turn = 0; turn < operand.run; ++turn, rows.next_head()) {
    // Worked out anew for each tile: what follows from it would take registers across tiles.
    const RowPlace<kD> at(ptx::opaque(static_cast<int>(threadIdx.x)));
    Rows<kD> values;
    {
      typename Load::Units units;
      loader.finish(rows, units);
      unpack<kBytes>(units, operand.dtype, values.units());
    }
    loader.next_head();
    if (turn + 1 < operand.run) loader.start();
    transform_rows<kD, kBytes, Operand>(args, rows, at, embedding, shared, turn, values);
    float a[Rows<kD>::kCount];
    finite_amax(values.flat(), a);
#pragma unroll
    for (int i = 0; i < Rows<kD>::kCount; ++i) {
      if (at.row(i) >= rows.valid) a[i] = 0;  // stages made something of their zeros
    }
    Finish::template finish<kD, Operand>(operand, rows, at, a, values, shared.warp_max[turn % 2]);
  }
}

}  // namespace octavo::sm90
