// SPDX-License-Identifier: Apache-2.0
// Quantisation blocks: which elements share a descale, and the arithmetic of that descale.
//
//   descale = max(amax, kMinAmax) / max_code        scale = max_code / max(amax, kMinAmax)
//
// amax is over finite elements only: one infinity must not flatten its block. INT8 has no code for
// what is not finite: there a block with such an element has amax and descale NaN, scale 0.
// kMinAmax keeps scale finite, so an all-zero block needs no special case: its codes are 0 and its
// descale tiny.
#pragma once

#include <cstdint>

#include "core/e4m3.h"
#include "core/e5m2.h"
#include "core/int8.h"
#include "octavo/quantize.h"

namespace octavo {

inline constexpr int kQuantBlockQ = 64;    // rows; one warpgroup's share of a query tile
inline constexpr int kQuantBlockKv = 128;  // rows; one key tile

inline constexpr float kMinAmax = 0x1p-110f;  // 57344 / 2^-110 < 2^126: scale stays finite

constexpr float max_magnitude(DType format) {
  return format == DType::i8 ? kInt8Max : format == DType::f8_e5m2 ? kE5m2Max : kE4m3Max;
}

struct ScalePair {
  float scale;    // multiplies before the cast
  float descale;  // multiplies after; the only one stored
};

/// FP32, two correctly rounded divisions.
constexpr ScalePair scale_of(float amax, DType format) {
  const float a = amax < kMinAmax ? kMinAmax : amax;
  const float top = max_magnitude(format);
  if (a != a) return {0.0f, a};
  return {top / a, a / top};
}

/// Rows that share a descale along the sequence; `rows` where all do.
constexpr std::int64_t rows_per_block(Granularity granularity, bool is_query, std::int64_t rows) {
  switch (granularity) {
    case Granularity::tensor:
    case Granularity::head: return rows > 0 ? rows : 1;
    case Granularity::block: return is_query ? kQuantBlockQ : kQuantBlockKv;
    case Granularity::token: return 1;
  }
  return 1;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Descales of one operand as engines read them: descale(b, h, row / rows_per_block), broadcast by
/// strides of 0.
struct DescaleMap {
  const float* data = nullptr;
  Granularity granularity = Granularity::tensor;
  std::int64_t stride_b = 0;
  std::int64_t stride_h = 0;
  std::int64_t stride_block = 0;
  std::int64_t rows_per_block = 1;
  std::int64_t heads_per_entry = 1;  // query heads that share an entry (q given per kv head)

  constexpr float at(std::int64_t b, std::int64_t h, std::int64_t row) const {
    return data[b * stride_b + (h / heads_per_entry) * stride_h +
                (row / rows_per_block) * stride_block];
  }
};

}  // namespace octavo
