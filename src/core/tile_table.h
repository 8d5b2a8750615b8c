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

/// How a forward kernel is cut: consumer warpgroups of 64 query rows, stages of K and V in shared
/// memory, registers a thread of consumers and producer; whether exponentials are spread among
/// other arithmetic; whether warpgroups take turns at the tensor cores.
struct KernelShape {
  int consumers;
  int stages;
  int consumer_registers;
  int producer_registers;
  bool spreads_exponentials;  // softmax.cuh, exponentiate: d 256 + 1 %, d 128 - 4 %, d 64 - 1 %;
                              // d 96 not measured since
  bool takes_turns;           // tile/turns.cuh: d 256 + 6 %, d 192 like it, not measured
};

/// Softmax, not the matrix products, is what FP8 attention waits for up to d 128; it overlaps with
/// the products of other warpgroups, so as many warpgroups as registers allow.
constexpr KernelShape kernel_shape(int padded_d) {
  switch (padded_d) {
    case 64: return {3, 4, 160, 32, false, false};   // S 64 + O 32 registers a thread
    case 96: return {3, 4, 160, 32, true, false};    // S 64 + O 48
    case 128: return {3, 4, 160, 32, false, false};  // S 64 + O 64
    case 192: return {2, 2, 240, 24, false, true};   // O 96; 57 KB a stage
    default: return {2, 2, 240, 24, true, true};     // O 128; 65 KB a stage
  }
}

/// Direct softmax.
constexpr KernelShape direct_kernel_shape(int padded_d) { return kernel_shape(padded_d); }

/// With descales per key or softcap: more registers a thread.
constexpr KernelShape general_kernel_shape(int padded_d) {
  return {2, padded_d <= 128 ? 4 : 2, 240, 24, false, padded_d > 128};
}

inline constexpr int kBlockM = 64;   // query rows of a warpgroup: what skips hidden key tiles
inline constexpr int kBlockN = 128;  // keys of a step of the online softmax: one descale of K and V

static_assert(kQuantBlockKv % kBlockN == 0, "a key tile must not straddle two descales");
static_assert(kBlockM % kQuantBlockQ == 0, "a query tile must hold whole quantisation blocks");

}  // namespace octavo
