// SPDX-License-Identifier: Apache-2.0
// Tile sizes and the padded head dims: the one place to change them.
#pragma once

#include <array>
#include <cstdint>

#include "core/quant_block.h"

namespace octavo {

/// Head dims that kernels are made for; others are padded with zeros to the next one.
inline constexpr std::array<int, 5> kHeadDims = {64, 96, 128, 192, 256};
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kHeadDimMultiple = 8;  // 16 bytes of BF16: one vector load

/// The head dim that `d` is padded to; 0 where none fits.
constexpr int padded_head_dim(std::int64_t d) {
  for (int candidate : kHeadDims) {
    if (d <= candidate) return candidate;
  }
  return 0;
}

/// Whose Q K^T of the next tile goes before the last promotion of this one: d 64, 4k up, INT8 + 2
/// to 3 %, E4M3 - 2 to - 5 %; d 128 INT8 - 1 %.
enum class EarlyScores { none, of_int8, of_all };

/// How a forward kernel is cut: consumer warpgroups of 64 query rows, stages of K and V in shared
/// memory, registers a thread of consumers and producer; whether exponentials are spread among
/// other arithmetic; whether warpgroups take turns at the tensor cores; how much of P is made
/// before P V starts; whether parts of P V overlap.
struct KernelShape {
  int consumers;
  int stages;
  int consumer_registers;
  int producer_registers;
  bool spreads_exponentials;  // softmax.cuh: d 256 + 1 %, d 128 - 4 %, d 64 - 1 %; d 96 not
                              // measured since
  bool takes_turns;           // tile/turns.cuh: d 256 + 6 %, d 192 like it, not measured
  int first_products;  // of 32 keys each, of P V's first part (pv.cuh; 8 bits only): d 64 exact
                       // 4: 613, 3: 643, 2: 652, 1: 656 TFLOPS at 4k; direct 816, 828, 791,
                       // 776; d 128 exact 4: 930, 3: 910
  bool overlaps_promotion;  // pv.cuh: d 128 direct + 3 %; takes registers for two products
  int out_buffers = 1;      // of 64 columns of a warpgroup's outputs each (epilogue.cuh)
  int q_stages = 2;         // tiles of query rows in shared memory
  bool pairs = false;       // thread blocks may share key tiles (tile/cluster.cuh)
  EarlyScores early_scores = EarlyScores::none;
  bool apart = false;           // K and V of a tile fall free apart, as they do with turns
  bool q_in_registers = false;  // qk.cuh
  int relay_from = 0;  // key tiles by which the busiest thread block must be relieved for items to
                       // change hands (tile/relay.h); 0: they never do
};

/// Key tiles that changing hands costs, 5: 8 bits, full, 4k, 8k, 16k of it as of none: d 128 direct
/// 1.02, 1.05, 1.06, exact 1.02, 1.03, 1.04; d 256 direct 1.01, 1.02, 1.02, exact 1.0, 1.0, 1.02; d
/// 64 1.0; from 3 key tiles on, 512 to 2k down to 0.91. BF16 d 128 2k to 8k 1.02, 1.03, 1.03; d 256
/// 0.99, 0.99, 1.0 (power: the clock falls as much); d 64, whose loop has no registers for it, 0.9.
constexpr KernelShape with_relay(KernelShape shape) {
  shape.relay_from = 5;
  return shape;
}

/// Softmax, not the matrix products, is what 8-bit attention waits for up to d 128; it overlaps
/// with the products of other warpgroups, so as many warpgroups as registers allow.
constexpr KernelShape kernel_shape(int padded_d) {
  switch (padded_d) {
    case 64: {
      KernelShape shape{3, 4, 160, 32, false, false, 2, false};  // S 64 + O 32 registers a thread
      shape.early_scores = EarlyScores::of_int8;
      shape.q_in_registers = true;  // exact + 1 %, direct - 2 %
      return with_relay(shape);
    }
    case 96: return {3, 4, 160, 32, true, false, 4, false};  // S 64 + O 48; relay - 1 %
    case 128: return with_relay({3, 4, 160, 32, false, false, 4, false});   // S 64 + O 64
    case 192: return with_relay({2, 2, 240, 24, false, true, 4, true, 2});  // O 96; 57 KB a stage
    default: {
      KernelShape shape{2, 2, 240, 24, true, true, 4, true};  // O 128; 65 KB a stage
      shape.pairs = true;
      return with_relay(shape);
    }
  }
}

/// The same by pairs of thread blocks: d 256 full 512, 1k, 4k, 16k 1.0, 1.01, 1.02, 1.02 of single
/// ones; in turns 1.03, 1.01, 1.01, 0.99. Single ones like this 0.97 to 0.99.
constexpr KernelShape pair_kernel_shape(int padded_d) {
  KernelShape shape = kernel_shape(padded_d);
  shape.takes_turns = false;
  shape.early_scores = EarlyScores::of_all;
  shape.apart = true;
  return shape;
}

/// Direct softmax, which needs fewer registers at a time.
constexpr KernelShape direct_kernel_shape(int padded_d) {
  switch (padded_d) {
    case 64: {
      KernelShape shape = kernel_shape(64);
      shape.first_products = 3;
      shape.q_in_registers = false;
      return shape;
    }
    case 128: return with_relay({3, 4, 160, 32, false, false, 4, true});
    case 256: {
      // Turns - 7 %. Early and apart: E4M3 full 1k to 16k 1.03 to 1.06, causal 1.01 to 1.04 of
      // neither; INT8 1.02 to 1.04; early alone up to 1.09 full, but 0.97 causal 1k. Pairs, full:
      // 1.08, 1.06, 1.08, 1.09, 1.09, 1.09 from 512 on, INT8 1.04 to 1.06; causal 0.97 to 1.05.
      KernelShape shape{2, 2, 240, 24, false, false, 4, true};
      shape.early_scores = EarlyScores::of_all;
      shape.apart = true;
      shape.pairs = true;
      return with_relay(shape);
    }
    default: return kernel_shape(padded_d);
  }
}

/// With descales per key or softcap: more registers a thread.
constexpr KernelShape general_kernel_shape(int padded_d) {
  return {2, padded_d <= 128 ? 4 : 2, 240, 24, false, padded_d > 128, 4, true};
}

/// 16-bit operands: twice the bytes, and the tensor cores, at half the rate, are what is waited
/// for. Q K^T of the next tile goes before P V of this one, which has one part (consumer.cuh).
/// TFLOPS at 4k full, variants of one run:
constexpr KernelShape kernel_shape_16bit(int padded_d) {
  switch (padded_d) {
    case 64: return {3, 4, 160, 32, true, false, 0, false};  // 524; not spread 517; 2 in turns 431
    case 96: return {2, 2, 240, 24, false, true, 0, false, 2};  // as 128, not measured
    case 128: {
      // 668; spread 662, no turns 589, 3 with tiles of 64 keys 607. 3 that start no product ahead:
      // full 1.01 of it from 1k on, causal 0.92 to 1.01.
      KernelShape shape{2, 2, 240, 24, false, true, 0, false, 2};
      // full 512 to 16k 1.02, 1.05, 1.02, 1.01, 1.02, 1.0; causal 0.9 to 1.01
      shape.pairs = true;
      // full and causal 1k to 8k 1.02, at the power limit (300 ms on end) 1.01 to 1.02
      shape.q_in_registers = true;
      return with_relay(shape);
    }
    default: {
      // d 256: 708; no turns 674, spread 713; d 192 like it, not measured
      KernelShape shape{2, padded_d == 192 ? 3 : 2, 240, 24, false, true, 0, false, 2};
      shape.q_stages = 1;
      // d 256 full 512, 1k, 4k 1.12, 1.04, 1.0; d 192 not measured
      shape.pairs = true;
      return shape;
    }
  }
}

/// The same with softcap.
constexpr KernelShape general_kernel_shape_16bit(int padded_d) {
  KernelShape shape = kernel_shape_16bit(padded_d);
  shape.relay_from = 0;
  shape.consumers = 2;
  shape.consumer_registers = 240;
  shape.producer_registers = 24;
  return shape;
}

inline constexpr int kBlockM = 64;   // query rows of a warpgroup: what skips hidden key tiles
inline constexpr int kBlockN = 128;  // keys of a step of the online softmax: one descale of K and V

/// The same of 16-bit operands: twice the bytes, so that two stages fit at d 192 and 256.
constexpr int block_n_16bit(int padded_d) { return padded_d <= 128 ? kBlockN : kBlockN / 2; }

static_assert(kQuantBlockKv % kBlockN == 0, "a key tile must not straddle two descales");
static_assert(kBlockM % kQuantBlockQ == 0, "a query tile must hold whole quantisation blocks");

}  // namespace octavo
