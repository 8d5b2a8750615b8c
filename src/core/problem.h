// SPDX-License-Identifier: Apache-2.0
// A validated attention call: what engines receive. Every field has been checked and resolved.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/mask.h"
#include "core/quant_block.h"
#include "core/tile_table.h"
#include "octavo/attention.h"

namespace octavo {

struct Dims {
  std::int64_t b = 0, sq = 0, sk = 0;
  std::int64_t hq = 0, hkv = 0;
  std::int64_t d = 0, dv = 0;
  std::int64_t group() const { return hq / hkv; }  // query heads that share a K and V head
};

/// One operand: its view and, where it came in 8 bits, its descales.
struct Operand {
  TensorView x;
  DescaleMap descale;
  bool quantised() const { return is_quantised(x.dtype); }
};

struct AttentionProblem {
  Dims dims;
  Operand q, k, v;
  TensorView out, lse, score_shift;
  double sm_scale = 0;
  float softcap = 0;
  MaskSpec mask;
  std::vector<std::int64_t> key_lengths;  // one a batch entry, always filled
  Precision precision = Precision::fp8;
  Recipe recipe;  // where precision is fp8
  std::optional<Rope> rope;
  SoftmaxPath softmax = SoftmaxPath::exact;
  Accumulator accumulator = Accumulator::hopper;
  int promote_every = 1;
  int num_splits = 1;
  int threads = 1;
  std::function<void(double)> progress;

  /// Whether the products multiply the operand's elements as they came: it is quantised already, or
  /// nothing is.
  bool multiplied_as_is(const Operand& x) const {
    return x.quantised() || precision != Precision::fp8;
  }

  /// Formats of the codes.
  DType q_format() const { return multiplied_as_is(q) ? q.x.dtype : recipe.qk_format; }
  DType k_format() const { return multiplied_as_is(k) ? k.x.dtype : recipe.k_format(); }
  DType v_format() const { return multiplied_as_is(v) ? v.x.dtype : recipe.kv_format; }
  DType p_format() const { return precision == Precision::fp8 ? DType::f8_e4m3 : v.x.dtype; }

  /// Keys of a step of the online softmax.
  int block_n() const {
    return precision == Precision::fp8 ? kBlockN
                                       : block_n_16bit(padded_head_dim(std::max(dims.d, dims.dv)));
  }

  Mask mask_of(std::int64_t batch) const {
    return make_mask(mask, dims.sq, key_lengths[static_cast<std::size_t>(batch)]);
  }
};

/// A pointer to row (b, s, h) of a [b, s, h, d] view.
inline std::byte* row_pointer(const TensorView& x, std::int64_t b, std::int64_t s, std::int64_t h) {
  const std::int64_t offset = b * x.stride[0] + s * x.stride[1] + h * x.stride[2];
  return static_cast<std::byte*>(x.data) + offset * static_cast<std::int64_t>(size_of(x.dtype));
}

}  // namespace octavo
