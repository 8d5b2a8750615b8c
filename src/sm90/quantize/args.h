// SPDX-License-Identifier: Apache-2.0
// What the quantiser's kernels are given, by value.
#pragma once

#include <cstdint>

#include "core/hadamard.h"
#include "core/key_mean.h"
#include "core/quant_block.h"
#include "sm90/divisor.h"

namespace octavo::sm90 {

inline constexpr int kTileRows = 128;  // rows a thread block quantises at a time
inline constexpr int kMaxInlineLengths = 128;
inline constexpr int kMostHeads = 16;  // that a thread block takes one after another

static_assert(kTileRows % kQuantBlockQ == 0 && kTileRows == kQuantBlockKv);

/// One of Q, K and V: strides in elements, rows as allocated (key lengths may end earlier).
struct OperandArgs {
  const void* x = nullptr;
  DType dtype = DType::bf16;
  std::int64_t stride_b = 0, stride_s = 0, stride_h = 0;
  std::uint8_t* codes = nullptr;
  float* descale = nullptr;
  float* amax = nullptr;  // coarse granularities: [1] or [b, h], filled before the cast
  int heads = 0;
  int rows = 0;
  int padded_rows = 0;
  int d = 0;
  Granularity granularity = Granularity::block;
  DType format = DType::f8_e4m3;  // of the codes
  bool wide_loads = false;  // every row starts on a 16-byte boundary, a tile's within 2^31 bytes
  float norm = 1.0f;        // the factor that a rotation leaves out of the values
  int blocks = 0;           // thread blocks; 0: not in this launch
  int run = 1;  // heads of the same rows that a block takes one after another; divides heads
  Divisor by_runs, by_row_tiles;  // block number to runs (fastest), tiles of rows, b
};

struct RopeArgs {
  const void* cos = nullptr;  // null: no embedding
  const void* sin = nullptr;
  std::int64_t cos_stride = 0, sin_stride = 0;
  DType dtype = DType::f32;
  int half = 0;
  bool interleaved = false;
  bool wide_loads = false;  // FP32 tables whose rows start on 16-byte boundaries
  std::int64_t q_offset = 0, k_offset = 0;
};

struct KeyLengths {
  const std::int32_t* device = nullptr;  // [b], or null
  bool use_value = false;
  std::int32_t value[kMaxInlineLengths];
};

struct QuantizeArgs {
  OperandArgs q, k, v;
  int b = 0;
  Divisor by_group;  // query heads that share a kv head
  bool rotate = false;
  SignBits signs{0};
  float* mean = nullptr;         // [b, hkv, padded d], rotated; or null: no smoothing
  float* score_shift = nullptr;  // [b, hq, sq], or null: not wanted
  float shift_norm = 1.0f;       // what q . mean lacks where both are rotated
  RopeArgs rope;
  KeyLengths lengths;
};

}  // namespace octavo::sm90
