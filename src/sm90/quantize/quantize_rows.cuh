// SPDX-License-Identifier: Apache-2.0
// A tile of Q or K: [rope] -> [rotate] -> [smooth] -> amax -> scale -> cast, all in registers. Rows
// that are rotated change places on the way (row_places.h); what comes then is written for either.
#pragma once

#include "sm90/ptx/grid_dependency.cuh"
#include "sm90/ptx/opaque.cuh"
#include "sm90/quantize/amax.cuh"
#include "sm90/quantize/cast.cuh"
#include "sm90/quantize/rope.cuh"
#include "sm90/quantize/scale.cuh"
#include "sm90/quantize/smooth.cuh"

namespace octavo::sm90 {

template <int kD, int kBytes>
using RowUnits = Unit<kBytes, ArrivalPlace<kD>::kPiece>[ArrivalPlace<kD>::kUnits];
template <int kD, int kBytes, bool kKeeps>
using RowLoader = Loader<kD, kBytes, ArrivalPlace<kD>, RowCopy<kD>, kKeeps>;

/// What a tile of Q or K finds in shared memory.
template <int kD>
struct RowShared {
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
  template <int kD, typename Place>
  static __device__ void smooth(const QuantizeArgs& args, const RowBlock& rows, const Place& at,
                                const ChannelMeans<kD>& mean, Rows<kD>& values) {
    float shift[Place::kRows];
    dot_mean<kD>(at, mean, values, shift);
    float* out = args.score_shift + std::int64_t{rows.head} * args.q.rows + rows.first;
#pragma unroll
    for (int i = 0; i < Place::kRows; ++i) {
      if (at.leads() && at.row_at(i) < rows.valid) {
        out[at.row_at(i)] = __fmul_rn(shift[i], args.shift_norm);
      }
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

  template <int kD, typename Place>
  static __device__ void smooth(const QuantizeArgs&, const RowBlock&, const Place& at,
                                const ChannelMeans<kD>& mean, Rows<kD>& values) {
    subtract_mean<kD>(at, mean, values);
  }
};

/// Scales of a thread's rows, by granularity; stores the descales.
template <int kD, typename Operand, typename Place>
__device__ void row_scales(const OperandArgs& operand, const RowBlock& rows, const Place& at,
                           const float (&a)[Place::kRows], float* warp_max,
                           float (&scale)[Place::kRows]) {
  if (operand.granularity == Granularity::token) {
#pragma unroll
    for (int i = 0; i < Place::kRows; ++i) {
      const float most = lanes_max<Place::kNear, Place::kFar>(a[i]);
      const ScalePair pair = scale_on_device(most, operand);
      if (at.leads()) *token_descale(operand, rows, at.row_at(i)) = pair.descale;
      scale[i] = pair.scale;
    }
  } else if (operand.granularity == Granularity::block) {
    constexpr int kRows = Operand::kBlockRows, kWarps = TileShape<kD>::kWarps * kRows / kTileRows;
    const int thread = opaque_thread();
    const float most = warps_max<kWarps>(largest(a), warp_max, thread);
    const ScalePair pair = scale_on_device(most, operand);
    same_scale(pair.scale, scale);
    const int first = rows.first + thread / (32 * kWarps) * kRows;
    if (thread % (32 * kWarps) == 0 && first < operand.rows) {
      *block_descale(operand, rows, first, kRows) = pair.descale;
    }
  } else {
    same_scale(coarse_scale(operand, rows), scale);
  }
}

/// kCount words of codes to an address that is a multiple of their size.
template <int kCount>
__device__ void store_codes(const std::uint32_t (&codes)[kCount], std::uint8_t* to) {
  if constexpr (kCount == 1) {
    *reinterpret_cast<std::uint32_t*>(to) = codes[0];
  } else if constexpr (kCount == 2) {
    *reinterpret_cast<uint2*>(to) = {codes[0], codes[1]};
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      reinterpret_cast<uint4*>(to)[i / 4] = {codes[i], codes[i + 1], codes[i + 2], codes[i + 3]};
    }
  }
}

template <int kD, typename Format, typename Place>
__device__ void cast_rows(const OperandArgs& operand, const RowBlock& rows, const Place& at,
                          const Rows<kD>& values, const float (&scale)[Place::kRows]) {
  using Shape = TileShape<kD>;
  std::uint8_t* codes = operand.codes +
                        (std::int64_t{rows.head} * operand.padded_rows + rows.first) * kD +
                        (at.first_row() * kD + at.first_channel());
#pragma unroll
  for (int i = 0; i < 2 * Shape::kGroups; ++i) {
    const int group = i / 2, side = i % 2, row = i * Place::kRows / (2 * Shape::kGroups);
    std::uint8_t* to = codes + (at.row_at(row) - at.first_row()) * kD;
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) {
      std::uint32_t run[Shape::kRun / 4];
      cast_run<Format>(values.x[group][side][block], scale[row], run);
      store_codes(run, to + Place::channel_step(side, block));
    }
  }
}

template <int kD, typename E4m3Cast, typename E5m2Cast, typename Place>
__device__ void cast_rows(const OperandArgs& operand, const RowBlock& rows, const Place& at,
                          const Rows<kD>& values, const float (&scale)[Place::kRows]) {
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
  template <int kD, typename Operand, typename Place>
  static __device__ void finish(const QuantizeArgs& args, const RowBlock& rows, const Place& at,
                                const float (&a)[Place::kRows], bool infinite,
                                const Rows<kD>& values, float* warp_max) {
    const OperandArgs& operand = Operand::operand(args);
    float scale[Place::kRows];
    row_scales<kD, Operand>(operand, rows, at, a, warp_max, scale);
    if (infinite) {
      cast_rows<kD, WithInfinities<E4m3>, WithInfinities<E5m2>>(operand, rows, at, values, scale);
    } else {
      cast_rows<kD, E4m3, E5m2>(operand, rows, at, values, scale);
    }
  }
};

/// .. or, for scales that span a head or the tensor, amax first.
struct AmaxRows {
  template <int kD, typename Operand, typename Place>
  static __device__ void finish(const QuantizeArgs& args, const RowBlock& rows, const Place&,
                                const float (&a)[Place::kRows], bool, const Rows<kD>&,
                                float* warp_max) {
    const OperandArgs& operand = Operand::operand(args);
    if (!is_coarse(operand)) return;
    const float most = warps_max<TileShape<kD>::kWarps>(largest(a), warp_max, opaque_thread());
    if (threadIdx.x == 0) add_coarse_amax(operand, rows, most);
  }
};

/// The rows as they arrived, embedded, in FP32.
template <int kD, int kBytes, typename Operand, typename Embedding>
__device__ void embed_rows(const QuantizeArgs& args, const RowBlock& rows,
                           const ArrivalPlace<kD>& at, const Embedding& embedding,
                           const RowUnits<kD, kBytes>& units, Rows<kD>& values) {
  const OperandArgs& operand = Operand::operand(args);
  using Pieces = float[ArrivalPlace<kD>::kUnits][ArrivalPlace<kD>::kPiece];
  unpack(units, operand.dtype, reinterpret_cast<Pieces&>(values.x));
  if constexpr (Embedding::kTurns) {
#pragma unroll
    for (int i = 0; i < ArrivalPlace<kD>::kRows; ++i) {
      embedding.template turn<kD, kBytes>(operand, rows, at, i, values.x[i]);
    }
  }
}

/// The rows in 16 bits as they arrived, rotated.
template <int kD, DType kType>
__device__ void rotate_words(const QuantizeArgs& args,
                             GroupWords<kD> (&words)[TileShape<kD>::kGroups], Rows<kD>& values) {
  const int thread = opaque_thread();
  const SignWords<kD> signs(args.signs, ArrivalPlace<kD>(thread));
  const HadamardSigns<kType> hadamard(thread);
#pragma unroll
  for (int group = 0; group < TileShape<kD>::kGroups; ++group) {
    signs.apply(words[group]);
    rotate_group<kD, kType>(hadamard, words[group], values.x[group]);
  }
}

/// .. those in FP32 rounded to 16 bits first ..
template <int kD, DType kType>
__device__ void rotate_rounded(const QuantizeArgs& args, Rows<kD>& values) {
  GroupWords<kD> words[TileShape<kD>::kGroups];
#pragma unroll
  for (int group = 0; group < TileShape<kD>::kGroups; ++group) {
    pack<kD, kType>(values.x[group], words[group]);
  }
  rotate_words<kD, kType>(args, words, values);
}

/// .. or, FP32 operands, in parts.
template <int kD>
__device__ void rotate_in_parts(const QuantizeArgs& args, Rows<kD>& values) {
  const int thread = opaque_thread();
  const SignWords<kD> signs(args.signs, ArrivalPlace<kD>(thread));
  const HadamardSigns<DType::bf16> hadamard(thread);
#pragma unroll
  for (auto& group : values.x) rotate_group<kD>(hadamard, signs, group);
}

/// The rows embedded and rotated. 16-bit elements without an embedding are the tensor cores'
/// operands as they are.
template <int kD, int kBytes, typename Operand, typename Embedding>
__device__ void rotate_rows(const QuantizeArgs& args, const RowBlock& rows,
                            const ArrivalPlace<kD>& at, const Embedding& embedding,
                            RowUnits<kD, kBytes>& units, Rows<kD>& values) {
  const bool f16 = Operand::operand(args).dtype == DType::f16;
  if constexpr (kBytes == 2 && !Embedding::kTurns) {
    auto& words = reinterpret_cast<GroupWords<kD>(&)[TileShape<kD>::kGroups]>(units);
    if (f16) {
      rotate_words<kD, DType::f16>(args, words, values);
    } else {
      rotate_words<kD, DType::bf16>(args, words, values);
    }
    return;
  }
  embed_rows<kD, kBytes, Operand>(args, rows, at, embedding, units, values);
  if constexpr (kBytes == 4) {
    rotate_in_parts<kD>(args, values);
  } else if (f16) {
    rotate_rounded<kD, DType::f16>(args, values);
  } else {
    rotate_rounded<kD, DType::bf16>(args, values);
  }
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
template <int kD, typename Place>
__device__ void clear_beyond(const RowBlock& rows, const Place& at, Rows<kD>& values) {
#pragma unroll
  for (int i = 0; i < Place::kRows; ++i) {
    if (ptx::opaque(at.row_at(i)) < rows.valid) continue;  // a branch: seldom taken
#pragma unroll
    for (float& x : values.template rows<Place>()[i]) x = 0;
  }
}

/// What comes after the rotation, of one tile. `means`: brings those that are needed, if they are
/// not there yet.
template <int kD, typename Operand, typename Finish, typename Place, typename Means>
__device__ void finish_rows(const QuantizeArgs& args, const RowBlock& rows, const Place& at,
                            const ChannelMeans<kD>& mean, float* warp_max, const Means& means,
                            Rows<kD>& values) {
  const OperandArgs& operand = Operand::operand(args);
  const auto smooth = [&] {
    if (!Operand::smooths(args)) return;
    means();
    Operand::template smooth<kD>(args, rows, at, mean, values);
  };
  if (!Operand::kShifts) smooth();
  if (rows.valid < kTileRows) clear_beyond<kD>(rows, at, values);
  float a[Place::kRows];
  const bool infinite = rows_amax(values.template rows<Place>(), operand.format, a);
  Finish::template finish<kD, Operand>(args, rows, at, a, infinite, values, warp_max);
  if (Operand::kShifts) smooth();
}

/// A thread block's run of heads of Q or K. With one head only it waits for the mean no sooner than
/// it needs it, else before it starts.
template <int kD, int kBytes, typename Operand, typename Embedding, typename Finish>
__device__ void walk_rows(const QuantizeArgs& args, int block, char* slots, RowShared<kD>& shared,
                          const Embedding& embedding) {
  using Load = RowLoader<kD, kBytes, !Embedding::kTurns && kBytes == 2>;
  const OperandArgs& operand = Operand::operand(args);
  RowBlock rows = Operand::rows(args, block);
  Load loader(operand, rows, slots);
  const std::int64_t position = Operand::position(args) + rows.first;
  embedding.template start<kD>(position, operand.rows - rows.first);
  loader.start(rows);
  const bool late = operand.run == 1;
  if (Operand::smooths(args) && !late) load_means<kD, Operand>(args, rows, shared);
  if constexpr (Embedding::kTurns) {
    embedding.template finish<kD>(position, operand.rows - rows.first);
  }
  __syncthreads();
  for (int turn = 0; turn < operand.run; ++turn) {
    const auto means = [&] {
      if (!late) return;
      load_means<kD, Operand>(args, rows, shared);
      __syncthreads();
    };
    const auto finish = [&](const auto& at, Rows<kD>& values) {
      finish_rows<kD, Operand, Finish>(args, rows, at, shared.mean[turn], shared.warp_max[turn % 2],
                                       means, values);
    };
    const ArrivalPlace<kD> arrival(opaque_thread());
    typename Load::Units units;
    Load::wait();
    loader.finish(rows, arrival, units);
    __syncwarp();  // the tile has been read
    if (turn + 1 < operand.run) loader.start(rows.next_head());
    Rows<kD> values;
    if (args.rotate) {
      rotate_rows<kD, kBytes, Operand>(args, rows, arrival, embedding, units, values);
      finish(RotatedPlace<kD>(opaque_thread()), values);
    } else {
      embed_rows<kD, kBytes, Operand>(args, rows, arrival, embedding, units, values);
      finish(ArrivalPlace<kD>(opaque_thread()), values);
    }
    rows = rows.next_head();
  }
}

}  // namespace octavo::sm90
