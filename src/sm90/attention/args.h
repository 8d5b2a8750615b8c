// SPDX-License-Identifier: Apache-2.0
// What the forward kernels are given, by value.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/mask.h"
#include "core/quant_block.h"
#include "octavo/tensor.h"
#include "sm90/divisor.h"
#include "sm90/tile/scheduler.h"

namespace octavo::sm90 {

inline constexpr int kMaxKeyLengths = 128;

/// f32 [b, h, s] with any strides; data may be null.
struct RowValues {
  float* data = nullptr;
  std::int64_t stride_b = 0, stride_h = 0, stride_s = 0;
  std::int64_t stride_split = 0;

  constexpr float* at(int b, int h, int s, int split = 0) const {
    return data + b * stride_b + h * stride_h + s * stride_s + split * stride_split;
  }
};

/// [b, s, h, d] with a last stride of 1; or a part of it for each split of the keys.
struct OutputTensor {
  void* data = nullptr;
  DType dtype = DType::bf16;
  std::int64_t stride_b = 0, stride_s = 0, stride_h = 0;  // elements
  std::int64_t stride_split = 0;

  constexpr std::int64_t offset(int b, int h, int s, int split = 0) const {
    return b * stride_b + s * stride_s + h * stride_h + split * stride_split;
  }
};

/// A DescaleMap without divisions: the producer warp shares its scheduler with a warp of every
/// consumer warpgroup, and what it issues they wait for.
struct Descales {
  const float* data = nullptr;
  std::int64_t stride_b = 0, stride_h = 0, stride_block = 0;
  Divisor rows_per_block, heads_per_entry;

  Descales() = default;
  explicit Descales(const DescaleMap& map)
      : data(map.data),
        stride_b(map.stride_b),
        stride_h(map.stride_h),
        stride_block(map.stride_block),
        rows_per_block(static_cast<int>(map.rows_per_block)),
        heads_per_entry(static_cast<int>(map.heads_per_entry)) {}

#ifdef __CUDACC__
  __device__ const float* line(int b, int h) const {
    return data + b * stride_b + heads_per_entry.quotient(h) * stride_h;
  }
  __device__ float at(const float* line, int row) const {
    return line[rows_per_block.quotient(row) * stride_block];
  }
#endif
};

struct AttentionArgs {
  CUtensorMap q, k;  // [b, h, rows, channels]
  CUtensorMap v;     // [b, h, channels, keys in kv order]
  Descales q_descale, k_descale, v_descale;
  RowValues score_shift;
  RowValues lse;

  OutputTensor out;
  CUtensorMap out_map;       // [b, h, rows, channels], where `copies_out`
  bool copies_out = false;   // the copy engine can write out
  bool wide_stores = false;  // FP32 rows that start on 16-byte boundaries

  Schedule schedule;
  void* batons = nullptr;    // where the schedule is a relay: baton.cuh
  std::uint64_t ticket = 0;  // that no other launch has
  int sq = 0, sk = 0;
  int lead = 0;               // the first tile of query rows begins at row -lead
  int dv = 0;                 // channels of out
  Divisor group;              // query heads that share a kv head
  int left = -1, right = -1;  // octavo/attention.h, MaskSpec; at most 2^30

  float sm_scale = 0;
  float sm_scale_log2 = 0;  // sm_scale log2 e
  float softcap_scale = 0;  // sm_scale / softcap; 0: no softcap
  float softcap_log2 = 0;   // softcap log2 e
  bool k_per_key = false;   // descales of K: one a key

  // Constants that the compiler is not to know.
  int once = 1;       // pv.cuh, promote_in_place
  float nothing = 0;  // qk.cuh, set_to_zero

  const std::int32_t* device_lengths = nullptr;  // [b], or null
  bool has_lengths = false;                      // `lengths` counts
  std::int32_t lengths[kMaxKeyLengths];

  /// Valid keys of a batch entry.
  constexpr int keys(int b) const {
    if (device_lengths != nullptr) {
      const int n = device_lengths[b];
      return n < 0 ? 0 : n < sk ? n : sk;
    }
    return has_lengths ? lengths[b] : sk;
  }
};

}  // namespace octavo::sm90
