// SPDX-License-Identifier: Apache-2.0
// Compile-time shape of one forward kernel, from core/tile_table.h.
#pragma once

#include <algorithm>

#include "core/tile_table.h"
#include "octavo/tensor.h"
#include "sm90/tile/fragment.h"

namespace octavo::sm90 {

/// One factor a row and key tile: the fast kernels.
struct PlainScores {
  static constexpr bool kGeneral = false;
  static constexpr bool kFoldsV = false;
  static constexpr bool kDirect = false;
};

/// Also descales per key of K, and softcap.
struct GeneralScores {
  static constexpr bool kGeneral = true;
  static constexpr bool kFoldsV = false;
  static constexpr bool kDirect = false;
};

/// Also descales per key of V, folded into P.
struct FoldedScores {
  static constexpr bool kGeneral = true;
  static constexpr bool kFoldsV = true;
  static constexpr bool kDirect = false;
};

/// The same scores, whose codes of P come without an exponential (requantise_p.cuh).
template <typename Scores>
struct Direct : Scores {
  static constexpr bool kDirect = true;
  static_assert(!Scores::kFoldsV, "folding takes p itself");
};

/// kFormat: of K. Q is INT8 where K is, E4M3 where K is in FP8, and all three are of one 16-bit
/// type. kBlocks: thread blocks of a cluster, which take an item together (tile/cluster.cuh).
template <int kD, int kDv, DType kFormat, typename ScoresType, int kBlocks = 1>
struct Traits {
  using Scores = ScoresType;
  static constexpr DType kKFormat = kFormat;
  static constexpr bool kInt8 = kFormat == DType::i8;  // Q as well
  static constexpr DType kVFormat = kInt8 ? DType::f8_e4m3 : kFormat;
  static constexpr bool k16Bit = !is_quantised(kFormat);
  static constexpr int kBytes = k16Bit ? 2 : 1;  // of an element of Q, K, V and P
  // What stands for 0 among scores that go into the softmax: qk.cuh.
  static constexpr float kScoreZero = kInt8 && !Scores::kGeneral ? kInt8Zero : 0.0f;
  static constexpr int kHeadDim = kD;
  static constexpr int kHeadDimV = kDv;
  static constexpr KernelShape kShape =
      k16Bit ? (Scores::kGeneral ? general_kernel_shape_16bit(kD) : kernel_shape_16bit(kD))
             : (Scores::kGeneral  ? general_kernel_shape(kD)
                : Scores::kDirect ? direct_kernel_shape(kD)
                : kBlocks > 1     ? pair_kernel_shape(kD)
                                  : kernel_shape(kD));
  static_assert(!k16Bit || (!Scores::kDirect && !Scores::kFoldsV));
  static constexpr int kConsumers = kShape.consumers;  // warpgroups of 64 query rows
  static constexpr int kStages = kShape.stages;        // of K and V in shared memory
  static constexpr int kBlockRows = kConsumers * kWarpgroupRows;
  static constexpr int kCluster = kBlocks;
  static constexpr int kItemRows = kBlockRows * kCluster;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroupThreads;  // and the producer's

  // A key tile, and a thread's scores of it: 64 x kBlockN / 128.
  static constexpr int kBlockN = k16Bit ? block_n_16bit(kD) : octavo::kBlockN;
  static constexpr int kScores = kBlockN / 2;
  // A product of P V takes 32 bytes of a row of P: kStepScores of a thread's scores.
  static constexpr int kStepKeys = 32 / kBytes;
  static constexpr int kSteps = kBlockN / kStepKeys;
  static constexpr int kStepScores = kScores / kSteps;
  static constexpr int kPWords = kScores * kBytes / 4;

  // Q K^T of the next tile is under way while this one's output is promoted.
  static constexpr bool kStartsEarly = kShape.early_scores == EarlyScores::of_all ||
                                       (kInt8 && kShape.early_scores == EarlyScores::of_int8);

  // Items may change hands: where a baton holds all of a row's state (baton.cuh), and host and
  // device count the same key tiles.
  static constexpr bool kRelays = kShape.relay_from > 0;
  static_assert(!kRelays || (!Scores::kFoldsV && kBlockN == octavo::kBlockN));

  // Registers for two products of P V at a time.
  static constexpr bool kOverlapsPromotion = kShape.overlaps_promotion && !Scores::kFoldsV;

  // Rows of Q and K, and of V in 16 bits, lie in shared memory in pieces of 128 bytes, the width of
  // a swizzle; channels that the tensor lacks are zeros that the copy engine fills in.
  static constexpr int kPieces = (kD * kBytes + 127) / 128;
  static constexpr int kVPieces = (kDv * kBytes + 127) / 128;
  static constexpr int kQStages = kShape.q_stages;
  // Outputs in 16 bits leave by way of shared memory, in pieces of 128 bytes of each row: into
  // buffers of their own, and where those are few also where the query rows were (epilogue.cuh).
  static constexpr int kOutPieces = (kDv * 2 + 127) / 128;
  static constexpr int kOutBuffers = std::min(kShape.out_buffers, kOutPieces);
  static constexpr int kQBuffers = k16Bit ? 0 : std::min(kOutPieces - kOutBuffers, kPieces);
  static_assert(k16Bit || kQStages > 1, "consumer.cuh: 8 bits let queries go after the epilogue");
  static constexpr bool kPerKey = Scores::kGeneral && !k16Bit;  // K may have a descale a key
  static constexpr int kDescales = kPerKey ? kBlockN : 1;       // of K, and of V, a key tile
  // Warpgroups out of step need K and V of different tiles: then K and V fall free and are awaited
  // apart, else together at K's barriers.
  static constexpr bool kApart = kShape.takes_turns || kShape.apart || k16Bit;
  static_assert(!kShape.takes_turns || kConsumers == 2);
  // Lanes of the producer that write notes or descales, each of which arrives at the barrier.
  static constexpr int kKWriters = kPerKey ? 32 : 1;
  static constexpr int kVWriters = Scores::kFoldsV ? 32 : 1;
};

}  // namespace octavo::sm90
