// SPDX-License-Identifier: Apache-2.0
// Q, K and V of one call in one launch, each element read once and each code written once:
//
//   V:     amax -> scale -> cast -> V^T in key order                            (quantize_keys.cuh)
//   Q, K:  [rope] -> [rotate] -> [smooth] -> amax -> scale -> cast -> rows      (quantize_rows.cuh)
//
// A thread block takes the same 128 rows of a few heads of one operand, copying the next head's
// while it works on one. V comes first: it needs no mean of K, which may still be on its way.
#pragma once

#include "sm90/ptx/shared_memory.cuh"
#include "sm90/quantize/quantize_keys.cuh"
#include "sm90/quantize/quantize_rows.cuh"

namespace octavo::sm90 {

/// Dynamic shared memory: slots of the copies, then what the operand needs, then angles.
template <int kD, int kBytes>
struct Shared {
  static constexpr int kSlots =
      kBytes == 2 ? std::max(RowCopy<kD>::kUnits, KeyPatches<kD>::kUnits) : 0;
  static constexpr std::size_t kSlotBytes = kSlots * TileShape<kD>::kThreads * kUnitBytes;

  /// `angles`: bytes of an embedding's.
  static std::size_t bytes(std::size_t angles) {
    const std::size_t rows = sizeof(RowShared<kD>) + angles, keys = sizeof(KeyShared<kD>);
    return kSlotBytes + (rows > keys ? rows : keys);
  }
};

/// Thread blocks that must fit a multiprocessor: half of them where FP32 rows take registers.
template <int kD, int kBytes>
constexpr int min_blocks() {
  constexpr int kMost = TileShape<kD>::kMinBlocks;
  return kBytes == 4 && kMost > 1 ? kMost / 2 : kMost;
}

template <int kD, int kBytes, typename Embedding, typename FinishRows, typename FinishKeys>
__device__ void walk_operands(const QuantizeArgs& args) {
  char* memory = ptx::dynamic_shared();
  char* rest = memory + Shared<kD, kBytes>::kSlotBytes;
  int block = static_cast<int>(blockIdx.x);
  if (block < args.v.blocks) {
    return walk_keys<kD, kBytes, FinishKeys>(args, block, memory,
                                             *reinterpret_cast<KeyShared<kD>*>(rest));
  }
  block -= args.v.blocks;
  auto& shared = *reinterpret_cast<RowShared<kD>*>(rest);
  const Embedding embedding(args.rope, rest + sizeof(RowShared<kD>));
  if (block < args.k.blocks) {
    return walk_rows<kD, kBytes, Key, Embedding, FinishRows>(args, block, memory, shared,
                                                             embedding);
  }
  block -= args.k.blocks;
  walk_rows<kD, kBytes, Query, Embedding, FinishRows>(args, block, memory, shared, embedding);
}

template <int kD, int kBytes, typename Embedding>
__global__ void __launch_bounds__(TileShape<kD>::kThreads, min_blocks<kD, kBytes>())
    quantize_kernel(const __grid_constant__ QuantizeArgs args) {
  ptx::launch_dependents();
  walk_operands<kD, kBytes, Embedding, CastRows, CastPatches>(args);
}

template <int kD, int kBytes, typename Embedding>
__global__ void __launch_bounds__(TileShape<kD>::kThreads, 1)
    amax_kernel(const __grid_constant__ QuantizeArgs args) {
  walk_operands<kD, kBytes, Embedding, AmaxRows, AmaxPatches>(args);
}

}  // namespace octavo::sm90
