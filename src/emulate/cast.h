// SPDX-License-Identifier: Apache-2.0
// Stage `cast`: code = FP8(x * scale), round to nearest even, saturating; NaN and infinities to
// NaN, either zero to code 0. INT8, which has no NaN: core/int8.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/e4m3.h"
#include "core/e5m2.h"
#include "core/int8.h"
#include "octavo/quantize.h"

namespace octavo::emulate {

template <typename Codec>
void cast_as(const float* x, std::int64_t n, float scale, std::uint8_t* codes, CastCounts& counts) {
  // Halfway between the largest value and the step that is missing above it.
  const float limit =
      Codec::decode(Codec::kMax) * (1.0f + 0.5f / static_cast<float>((2 << Codec::kMantissa) - 1));
  for (std::int64_t i = 0; i < n; ++i) {
    const float y = x[i] == 0 ? 0.0f : x[i] * scale;
    codes[i] = Codec::encode(y);
    counts.saturated += std::fabs(y) > limit && std::isfinite(x[i]);
    counts.flushed += (codes[i] & 0x7f) == 0 && x[i] != 0;
  }
  counts.total += n;
}

inline void cast_int8(const float* x, std::int64_t n, float scale, std::uint8_t* codes,
                      CastCounts& counts) {
  for (std::int64_t i = 0; i < n; ++i) {
    codes[i] = encode_int8(x[i], scale);
    counts.flushed += codes[i] == 0 && x[i] != 0 && scale != 0;  // 0: beside what is not finite
  }
  counts.total += n;
}

inline void cast(const float* x, std::int64_t n, float scale, DType format, std::uint8_t* codes,
                 CastCounts& counts) {
  if (format == DType::i8) {
    cast_int8(x, n, scale, codes, counts);
  } else if (format == DType::f8_e5m2) {
    cast_as<E5m2>(x, n, scale, codes, counts);
  } else {
    cast_as<E4m3>(x, n, scale, codes, counts);
  }
}

}  // namespace octavo::emulate
