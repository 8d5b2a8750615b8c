// SPDX-License-Identifier: Apache-2.0
// A tile of Q or K: [rope] -> [rotate] -> [smooth] -> amax -> scale -> cast, all in the registers
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
  Signs<kD> signs;
  ChannelMeans<kD> mean[kMostHeads];  // of each head of the run
  float warp_max[2][TileShape<kD>::kWarps];
};

/// What differs between Q and K. Smoothing takes the mean as late as it can: K before amax, Q after
/// the cast.
struct Query {
  static constexpr int kBlockRows = kQuantBlockQ;

  static __device__ const OperandArgs& operand(const QuantizeArgs& args) { return args.q; }
  static __device__ std::int64_t position(const QuantizeArgs& args) { return args.rope.q_offset; }
  static __device__ RowBlock rows(const QuantizeArgs& args, int block) {
    return row_block(args.q, block);
  }
  static __device__ bool smooths(const QuantizeArgs& args) { return args.score_shift != nullptr; }
  static __device__ int mean_head(const QuantizeArgs& args, int h) {
    return args.by_group.quotient(h);
  }
  static constexpr bool kShifts = true;

  /// Leaves q . mean, which smoothing takes from every score of a row.
  template <int kD>
  static __device__ void smooth(const QuantizeArgs& args, const RowBlock& rows,
                                const RowPlace<kD>& at, const ChannelMeans<kD>& mean,
                                Rows<kD>& values) {
    float shift[Rows<kD>::kCount];
    dot_mean<kD>(at, mean, values, shift);
    float* out = args.score_shift + std::int64_t{rows.head} * args.q.rows + rows.first;
#pragma unroll
    for (int i = 0; i < Rows<kD>::kCount; ++i) {
      if (at.l == 0 && at.row(i) < rows.valid)
        out[at.row(i)] = __fmul_rn(shift[i], args.shift_norm);
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
  static __device__ bool smooths(const QuantizeArgs& args) { return args.mean != nullptr; }
  static __device__ int mean_head(const QuantizeArgs&, int h) { return h; }
  static constexpr bool kShifts = false;

  template <int kD>
  static __device__ void smooth(const QuantizeArgs&, const RowBlock&, const RowPlace<kD>& at,
                                const ChannelMeans<kD>& mean, Rows<kD>& values) {
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
      const ScalePair pair = scale_on_device(row_max(a[i]), operand);
      if (at.l == 0) *token_descale(operand, rows, at.row(i)) = pair.descale;
      scale[i] = pair.scale;
    }
  } else if (operand.granularity == Granularity::block) {
    constexpr int kRows = Operand::kBlockRows, kWarps = TileShape<kD>::kWarps * kRows / kTileRows;
    const float most = warps_max<kWarps>(largest(a), warp_max, at.thread);
    const ScalePair pair = scale_on_device(most, operand);
    same_scale(pair.scale, scale);
    const int first = rows.first + at.thread / (32 * kWarps) * kRows;
    if (at.thread % (32 * kWarps) == 0 && first < operand.rows) {
      *block_descale(operand, rows, first, kRows) = pair.descale;
    }
  } else {
    same_scale(coarse_scale(operand, rows), scale);
  }
}

/// Scales of a thread's rows, with the signs that rotated units have wrong: those of even units and
/// of odd ones.
template <int kD>
struct SignedScales {
  float value[Rows<kD>::kCount][2];

  __device__ SignedScales(const QuantizeArgs& args, const RowPlace<kD>& at,
                          const float (&scale)[Rows<kD>::kCount]) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::uint32_t sign = rotation_sign<kD>(args, at.l, k);
#pragma unroll
      for (int i = 0; i < Rows<kD>::kCount; ++i) value[i][k] = flipped(scale[i], sign);
    }
  }
};

template <int kD, typename Format>
__device__ void cast_rows(const OperandArgs& operand, const RowBlock& rows, const RowPlace<kD>& at,
                          const Rows<kD>& values, const SignedScales<kD>& scale) {
  std::uint8_t* codes = operand.codes +
                        (std::int64_t{rows.head} * operand.padded_rows + rows.first) * kD +
                        (at.first * kD + at.first_channel());
#pragma unroll
  for (int i = 0; i < Rows<kD>::kCount; ++i) {
#pragma unroll
    for (int k = 0; k < Rows<kD>::kUnits; ++k) {
      const uint2 unit = cast_unit<Format>(values.x[i][k], scale.value[i][k % 2]);
      std::uint8_t* to = codes + i * kRowsAtOnce * kD + RowPlace<kD>::channel_step(k);
      *reinterpret_cast<uint2*>(to) = unit;
    }
  }
}

template <int kD, typename E4m3Cast, typename E5m2Cast>
__device__ void cast_rows(const OperandArgs& operand, const RowBlock& rows, const RowPlace<kD>& at,
                          const Rows<kD>& values, const SignedScales<kD>& scale) {
  const int format = ptx::opaque(static_cast<int>(operand.format));
  if (format == static_cast<int>(DType::i8)) {
    cast_rows<kD, Int8>(operand, rows, at, values, scale);
  } else if (format == static_cast<int>(DType::f8_e5m2)) {
    cast_rows<kD, E5m2Cast>(operand, rows, at, values, scale);
  } else {
    cast_rows<kD, E4m3Cast>(operand, rows, at, values, scale);
  }
}

/// What is done with a tile in registers: the cast ..
struct CastRows {
  template <int kD, typename Operand>
  static __device__ void finish(const QuantizeArgs& args, const RowBlock& rows,
                                const RowPlace<kD>& at, const float (&a)[Rows<kD>::kCount],
                                bool infinite, const Rows<kD>& values, float* warp_max) {
    const OperandArgs& operand = Operand::operand(args);
    float scales[Rows<kD>::kCount];
    row_scales<kD, Operand>(operand, rows, at, a, warp_max, scales);
    const SignedScales<kD> scale(args, at, scales);
    if (infinite) {
      cast_rows<kD, WithInfinities<E4m3>, WithInfinities<E5m2>>(operand, rows, at, values, scale);
    } else {
      cast_rows<kD, E4m3, E5m2>(operand, rows, at, values, scale);
    }
  }
};

/// .. or, for scales that span a head or the tensor, amax first.
struct AmaxRows {
  template <int kD, typename Operand>
  static __device__ void finish(const QuantizeArgs& args, const RowBlock& rows,
                                const RowPlace<kD>& at, const float (&a)[Rows<kD>::kCount], bool,
                                const Rows<kD>&, float* warp_max) {
    const OperandArgs& operand = Operand::operand(args);
    if (!is_coarse(operand)) return;
    const float most = warps_max<TileShape<kD>::kWarps>(largest(a), warp_max, at.thread);
    if (threadIdx.x == 0) add_coarse_amax(operand, rows, most);
  }
};

/// The rows in FP32, embedded and rotated.
template <int kD, int kBytes, typename Operand, typename Embedding>
__device__ void transform_rows(const QuantizeArgs& args, const RowBlock& rows,
                               const ArrivalPlace<kD>& at, const Embedding& embedding,
                               const Signs<kD>& signs,
                               const Unit<kBytes> (&units)[ArrivalPlace<kD>::kUnits],
                               Rows<kD>& values) {
  const OperandArgs& operand = Operand::operand(args);
  if constexpr (kBytes == 4 && kD == 256) {
    unpack(units, operand.dtype, ThreadSignBits<kD>(args, at), values.units());
  } else {
    unpack(units, operand.dtype, ThreadSigns<kD>(signs, at), values.units());
  }
#pragma unroll
  for (int i = 0; i < Rows<kD>::kCount; ++i) {
    const int row = at.row(i * Rows<kD>::kUnits);
    embedding.template turn<kD, kBytes>(operand, rows, at, row, signs, values.x[i]);
  }
  if (args.rotate) rotate_rows<kD>(at.l, values);
}

/// The means that a run of heads needs, which the launch before works out. All threads call; a
/// barrier must follow.
template <int kD, typename Operand>
__device__ void load_means(const QuantizeArgs& args, const RowBlock& rows, RowShared<kD>& shared) {
  ptx::wait_for_launch_before();
  for (int i = opaque_thread(); i < Operand::operand(args).run * kD; i += TileShape<kD>::kThreads) {
    const int h = i / kD, c = i % kD;
    const std::int64_t head =
        std::int64_t{rows.b} * args.k.heads + Operand::mean_head(args, rows.h + h);
    shared.mean[h].value[ChannelMeans<kD>::at(c)] = args.mean[head * kD + c];
  }
}

/// Rows beyond the valid ones become 0 again, of which stages may have made something.
template <int kD>
__device__ void clear_beyond(const RowBlock& rows, const RowPlace<kD>& at, Rows<kD>& values) {
#pragma unroll
  for (int i = 0; i < Rows<kD>::kCount; ++i) {
    if (ptx::opaque(at.row(i)) < rows.valid) continue;  // a branch: seldom taken
#pragma unroll
    for (auto& unit : values.x[i]) {
#pragma unroll
      for (float& x : unit) x = 0;
    }
  }
}

/// A thread block's run of heads of Q or K. With one head only it waits for the mean no sooner than
/// it needs it, else before it starts.
template <int kD, int kBytes, typename Operand, typename Embedding, typename Finish>
__device__ void walk_rows(const QuantizeArgs& args, int block, char* slots, RowShared<kD>& shared,
                          const Embedding& embedding) {
  using Load = Loader<kD, kBytes, ArrivalPlace<kD>, !Embedding::kTurns && kBytes == 2>;
  const OperandArgs& operand = Operand::operand(args);
  RowBlock rows = Operand::rows(args, block);
  Load loader(operand, rows, slots);
  const std::int64_t position = Operand::position(args) + rows.first;
  embedding.template start<kD>(position, operand.rows - rows.first);
  loader.start(rows);
  init_signs<kD>(args, shared.signs);
  const bool smooths = Operand::smooths(args), late = operand.run == 1;
  if (smooths && !late) load_means<kD, Operand>(args, rows, shared);
  __syncthreads();
  if constexpr (Embedding::kTurns) {
    embedding.template finish<kD>(position, operand.rows - rows.first, shared.signs);
    __syncthreads();
  }
  for (int turn = 0; turn < operand.run; ++turn) {
    Rows<kD> values;
    {
      typename Load::Units units;
      const ArrivalPlace<kD> arrival(RowPlace<kD>(opaque_thread()), args.rotate);
      Load::wait();
      loader.finish(rows, arrival, units);
      __syncwarp();  // the tile has been read
      if (turn + 1 < operand.run) loader.start(rows.next_head());
      transform_rows<kD, kBytes, Operand>(args, rows, arrival, embedding, shared.signs, units,
                                          values);
    }
    const RowPlace<kD> at(opaque_thread());
    const auto smooth = [&](Rows<kD>& values) {
      if (!smooths) return;
      if (late) {
        load_means<kD, Operand>(args, rows, shared);
        __syncthreads();
      }
      Operand::template smooth<kD>(args, rows, at, shared.mean[turn], values);
    };
    if (!Operand::kShifts) smooth(values);
    if (rows.valid < kTileRows) clear_beyond<kD>(rows, at, values);
    float a[Rows<kD>::kCount];
    const bool infinite = rows_amax(values.flat(), operand.format, a);
    Finish::template finish<kD, Operand>(args, rows, at, a, infinite, values,
                                         shared.warp_max[turn % 2]);
    if (Operand::kShifts) smooth(values);
    rows = rows.next_head();
  }
}

}  // namespace octavo::sm90
