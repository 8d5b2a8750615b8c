// SPDX-License-Identifier: Apache-2.0
// Single elements of strided tensors in any dtype.
#pragma once

#include <cstring>

#include "core/e4m3.h"
#include "core/e5m2.h"
#include "core/half.h"
#include "core/int8.h"
#include "core/problem.h"

namespace octavo {

/// Element `i` of a row whose last stride is 1.
inline float load_element(const std::byte* row, DType dtype, std::int64_t i) {
  const std::byte* at = row + i * static_cast<std::int64_t>(size_of(dtype));
  std::uint16_t half = 0;
  float single = 0;
  switch (dtype) {
    case DType::f32: std::memcpy(&single, at, 4); return single;
    case DType::f16: std::memcpy(&half, at, 2); return f16_to_float(half);
    case DType::bf16: std::memcpy(&half, at, 2); return bf16_to_float(half);
    case DType::f8_e4m3: return E4m3::decode(static_cast<std::uint8_t>(*at));
    case DType::f8_e5m2: return E5m2::decode(static_cast<std::uint8_t>(*at));
    case DType::i8: return decode_int8(static_cast<std::uint8_t>(*at));
  }
  return 0;
}

inline void store_element(std::byte* row, DType dtype, std::int64_t i, float x) {
  std::byte* at = row + i * static_cast<std::int64_t>(size_of(dtype));
  std::uint16_t half = 0;
  switch (dtype) {
    case DType::f32: std::memcpy(at, &x, 4); return;
    case DType::f16:
      half = float_to_f16(x);
      std::memcpy(at, &half, 2);
      return;
    case DType::bf16:
      half = float_to_bf16(x);
      std::memcpy(at, &half, 2);
      return;
    case DType::f8_e4m3: *at = static_cast<std::byte>(E4m3::encode(x)); return;
    case DType::f8_e5m2: *at = static_cast<std::byte>(E5m2::encode(x)); return;
    case DType::i8:
      *at = static_cast<std::byte>(encode_int8(x > 127 ? 127 : x < -127 ? -127 : x, 1.0f));
      return;
  }
}

/// The first `n` elements of a row in FP32.
inline void load_row(const std::byte* row, DType dtype, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = load_element(row, dtype, i);
}

/// The same backwards.
inline void store_row(const float* x, DType dtype, std::int64_t n, std::byte* row) {
  for (std::int64_t i = 0; i < n; ++i) store_element(row, dtype, i, x[i]);
}

/// Row `row` of a [rows, n] table whose last stride is 1, in FP32.
inline void load_table_row(const TensorView& table, std::int64_t row, float* out) {
  const std::int64_t offset =
      row * table.stride[0] * static_cast<std::int64_t>(size_of(table.dtype));
  load_row(static_cast<const std::byte*>(table.data) + offset, table.dtype, table.shape[1], out);
}

/// Element (b, h, i) of an f32 [b, h, s] tensor: LSE, score shifts.
inline float load_row_value(const TensorView& x, std::int64_t b, std::int64_t h, std::int64_t i) {
  float value;
  std::memcpy(
      &value,
      static_cast<const float*>(x.data) + b * x.stride[0] + h * x.stride[1] + i * x.stride[2], 4);
  return value;
}

inline void store_row_value(const TensorView& x, std::int64_t b, std::int64_t h, std::int64_t i,
                            float value) {
  std::memcpy(static_cast<float*>(x.data) + b * x.stride[0] + h * x.stride[1] + i * x.stride[2],
              &value, 4);
}

}  // namespace octavo
