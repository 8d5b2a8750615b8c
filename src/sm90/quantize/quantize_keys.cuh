// SPDX-License-Identifier: Apache-2.0
// A tile of V: amax -> scale -> cast -> V^T in key order.
#pragma once

#include "sm90/ptx/opaque.cuh"
#include "sm90/quantize/amax.cuh"
#include "sm90/quantize/cast.cuh"
#include "sm90/quantize/load.cuh"
#include "sm90/quantize/scale.cuh"
#include "sm90/quantize/transpose.cuh"

namespace octavo::sm90 {

/// What a tile of V needs in shared memory. Maxima alternate between two places, so that one
/// barrier a use is enough.
template <int kD>
struct KeyShared {
  TransposeStorage<kD> transpose;
  float warp_max[2][TileShape<kD>::kWarps];
  int key_max[2][kTileRows];  // bits of floats >= 0
};

/// A thread's patches of V in FP32.
template <int kD>
struct Patches {
  static constexpr int kCount = KeyPatches<kD>::kCount, kKeys = KeyPatches<kD>::kUnits;
  float x[kKeys][kChannels];
};

/// Scales of single keys: the threads of a key meet in shared memory.
template <int kD>
__device__ void key_scales(const OperandArgs& operand, const RowBlock& rows,
                           const KeyPatches<kD>& at, const float (&a)[Patches<kD>::kKeys],
                           KeyShared<kD>& shared, int turn, float (&scale)[Patches<kD>::kKeys]) {
  int* key_max = shared.key_max[turn];
#pragma unroll
  for (int i = 0; i < Patches<kD>::kKeys; ++i) {
    if (at.active(i / kPatchKeys)) atomicMax(&key_max[at.row(i)], __float_as_int(a[i]));
  }
  __syncthreads();
  const int thread = at.thread;
  if (thread < kTileRows) {
    const float most = __int_as_float(key_max[thread]);
    *token_descale(operand, rows, thread) = scale_on_device(most, operand).descale;
    shared.key_max[1 - turn][thread] = 0;  // for the next tile
  }
#pragma unroll
  for (int i = 0; i < Patches<kD>::kKeys; ++i) {
    if (!at.active(i / kPatchKeys)) continue;
    scale[i] = scale_on_device(__int_as_float(key_max[at.row(i)]), operand).scale;
  }
}

/// Scales of a thread's keys, by granularity; stores the descales. Synchronises: whatever the tile
/// before left in shared memory has been read.
template <int kD>
__device__ void patch_scales(const OperandArgs& operand, const RowBlock& rows,
                             const KeyPatches<kD>& at, const float (&a)[Patches<kD>::kKeys],
                             KeyShared<kD>& shared, int turn, float (&scale)[Patches<kD>::kKeys]) {
  if (operand.granularity == Granularity::token) {
    key_scales<kD>(operand, rows, at, a, shared, turn, scale);
  } else if (operand.granularity == Granularity::block) {
    const float most =
        warps_max<TileShape<kD>::kWarps>(largest(a), shared.warp_max[turn], at.thread);
    const ScalePair pair = scale_on_device(most, operand);
    same_scale(pair.scale, scale);
    if (at.thread == 0) *block_descale(operand, rows, rows.first, kTileRows) = pair.descale;
  } else {
    same_scale(coarse_scale(operand, rows), scale);
    __syncthreads();
  }
}

template <int kD, typename Format>
__device__ void cast_patches(const KeyPatches<kD>& at, const Patches<kD>& values,
                             const float (&scale)[Patches<kD>::kKeys],
                             TransposeStorage<kD>& transpose) {
#pragma unroll
  for (int p = 0; p < Patches<kD>::kCount; ++p) {
    if (!at.active(p)) continue;
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      float y[kPatchKeys];
#pragma unroll
      for (int n = 0; n < kPatchKeys; ++n) {
        const int i = p * kPatchKeys + n;
        y[n] = scaled<Format>(values.x[i][j], scale[i]);
      }
      put_word<kD>(transpose, at.patch(p) + j, at.u, cast4<Format>(y[0], y[1], y[2], y[3]));
    }
  }
}

/// The cast ..
struct CastPatches {
  template <int kD>
  static __device__ void finish(const OperandArgs& operand, const RowBlock& rows,
                                const KeyPatches<kD>& at, const float (&a)[Patches<kD>::kKeys],
                                bool infinite, const Patches<kD>& values, KeyShared<kD>& shared,
                                int turn) {
    float scale[Patches<kD>::kKeys];
    patch_scales<kD>(operand, rows, at, a, shared, turn, scale);
    if (infinite) {
      if (operand.format == DType::f8_e5m2) {
        cast_patches<kD, WithInfinities<E5m2>>(at, values, scale, shared.transpose);
      } else {
        cast_patches<kD, WithInfinities<E4m3>>(at, values, scale, shared.transpose);
      }
    } else if (operand.format == DType::f8_e5m2) {
      cast_patches<kD, E5m2>(at, values, scale, shared.transpose);
    } else {
      cast_patches<kD, E4m3>(at, values, scale, shared.transpose);
    }
    __syncthreads();
    store_transposed<kD>(
        shared.transpose, at.thread,
        operand.codes + std::int64_t{rows.head} * kD * operand.padded_rows + rows.first,
        operand.padded_rows);
  }
};

/// .. or, for scales that span a head or the tensor, amax first.
struct AmaxPatches {
  template <int kD>
  static __device__ void finish(const OperandArgs& operand, const RowBlock& rows,
                                const KeyPatches<kD>& at, const float (&a)[Patches<kD>::kKeys],
                                bool, const Patches<kD>&, KeyShared<kD>& shared, int turn) {
    if (!is_coarse(operand)) return;
    const float most =
        warps_max<TileShape<kD>::kWarps>(largest(a), shared.warp_max[turn], at.thread);
    if (threadIdx.x == 0) add_coarse_amax(operand, rows, most);
  }
};

/// A thread block's run of heads of V.
template <int kD, int kBytes, typename Finish>
__device__ void walk_keys(const QuantizeArgs& args, int block, char* slots, KeyShared<kD>& shared) {
  using Load = Loader<kD, kBytes, KeyPatches<kD>, KeyCopy<kD>, false>;
  const OperandArgs& operand = args.v;
  RowBlock rows = key_block(operand, args.lengths, block);
  Load loader(operand, rows, slots);
  loader.start(rows);
  if (threadIdx.x < 2 * kTileRows) (&shared.key_max[0][0])[threadIdx.x] = 0;
  __syncthreads();
  for (int turn = 0; turn < operand.run; ++turn, rows = rows.next_head()) {
    const KeyPatches<kD> at(opaque_thread());
    Patches<kD> values;
    {
      typename Load::Units units;
      Load::wait();
      loader.finish(rows, at, units);
      unpack(units, operand.dtype, values.x);
    }
    if (turn + 1 < operand.run) loader.start(rows.next_head());
    float a[Patches<kD>::kKeys];
    const bool infinite = rows_amax(values.x, operand.format, a);
    Finish::template finish<kD>(operand, rows, at, a, infinite, values, shared, turn % 2);
  }
}

}  // namespace octavo::sm90
