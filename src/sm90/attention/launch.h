// SPDX-License-Identifier: Apache-2.0
// The forward kernels as host code sees them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "octavo/tensor.h"

namespace octavo::sm90 {

struct AttentionKernel {
  const void* function;
  const char* name;  // as `octavo info` shows it
  int threads;
  int cluster;    // thread blocks that take an item together
  int item_rows;  // query rows of an item
  std::size_t shared_bytes;
  int key_tile;             // keys of a key tile
  int relay_from;           // KernelShape
  std::size_t baton_bytes;  // of a thread block, where items change hands (tile/relay.h)

  int block_rows() const { return item_rows / cluster; }
};

/// Those whose V is E4M3 and whose Q and K are one of E4M3 and INT8.
struct FormatKernels {
  AttentionKernel plain;                   // a descale per key tile or coarser
  AttentionKernel general;                 // K: a descale per key; softcap
  AttentionKernel folded;                  // V: a descale per key
  AttentionKernel direct, general_direct;  // softmax direct
  AttentionKernel pair, direct_pair;       // plain and direct, by pairs of thread blocks
};

/// Those whose Q, K and V are of one 16-bit type.
struct Kernels16Bit {
  AttentionKernel plain, general;  // general: softcap
  AttentionKernel pair;            // plain, by pairs of thread blocks that share key tiles
};

/// The kernels of one pair of padded head dims.
struct AttentionKernels {
  FormatKernels e4m3, int8;
  AttentionKernel general_e5m2, folded_e5m2;  // K and V
  Kernels16Bit bf16, f16;
};

template <int kD, int kDv>
AttentionKernels attention_kernels();

extern template AttentionKernels attention_kernels<64, 64>();
extern template AttentionKernels attention_kernels<96, 96>();
extern template AttentionKernels attention_kernels<128, 128>();
extern template AttentionKernels attention_kernels<192, 128>();
extern template AttentionKernels attention_kernels<192, 192>();
extern template AttentionKernels attention_kernels<256, 256>();

}  // namespace octavo::sm90
