// SPDX-License-Identifier: Apache-2.0
#include "workload/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "core/load.h"
#include "octavo/error.h"

namespace octavo::workload {
namespace {

// Bytes from one element of a row to the next.
std::int64_t row_step(const TensorView& x) {
  return x.stride[x.rank - 1] * static_cast<std::int64_t>(size_of(x.dtype));
}

}  // namespace

TensorView Tensor::view() {
  TensorView x{};
  x.data = bytes.data();
  x.dtype = dtype;
  x.rank = rank;
  x.shape = shape;
  std::int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    x.stride[i] = stride;
    stride *= shape[i];
  }
  return x;
}

Tensor make_tensor(DType dtype, std::span<const std::int64_t> shape) {
  if (shape.empty() || shape.size() > static_cast<std::size_t>(kMaxRank)) {
    throw Error(ErrorCode::invalid_argument, "make_tensor: rank is " +
                                                 std::to_string(shape.size()) + "; must be 1 to " +
                                                 std::to_string(kMaxRank));
  }
  Tensor x;
  x.dtype = dtype;
  x.rank = static_cast<int>(shape.size());
  auto room = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(size_of(dtype));
  std::int64_t numel = 1;
  for (int i = 0; i < x.rank; ++i) {
    const std::int64_t extent = shape[static_cast<std::size_t>(i)];
    if (extent < 0 || (extent > 0 && numel > room / extent)) {
      throw Error(ErrorCode::invalid_argument,
                  "make_tensor: shape[" + std::to_string(i) + "] is " + std::to_string(extent) +
                      "; must be at least 0, and all extents together must be addressable");
    }
    x.shape[i] = extent;
    numel *= extent;
  }
  x.bytes.resize(static_cast<std::size_t>(numel) * size_of(dtype));
  return x;
}

Tensor make_tensor(DType dtype, std::initializer_list<std::int64_t> shape) {
  return make_tensor(dtype, std::span<const std::int64_t>(shape.begin(), shape.size()));
}

void poison(Tensor& x) { std::fill(x.bytes.begin(), x.bytes.end(), std::byte{0xff}); }

std::int64_t row_count(const TensorView& x) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank; ++i) rows *= x.shape[i];
  return rows;
}

std::byte* row_at(const TensorView& x, std::int64_t row) {
  std::int64_t offset = 0;
  for (int i = x.rank - 2; i >= 0; --i) {
    offset += row % x.shape[i] * x.stride[i];
    row /= x.shape[i];
  }
  return static_cast<std::byte*>(x.data) + offset * static_cast<std::int64_t>(size_of(x.dtype));
}

void load_row(const TensorView& x, std::int64_t row, std::span<float> values) {
  const std::byte* from = row_at(x, row);
  const std::int64_t step = row_step(x);
  for (float& value : values) {
    value = load_element(from, x.dtype, 0);
    from += step;
  }
}

void store_row(const TensorView& x, std::int64_t row, std::span<const float> values) {
  std::byte* to = row_at(x, row);
  const std::int64_t step = row_step(x);
  for (const float value : values) {
    store_element(to, x.dtype, 0, value);
    to += step;
  }
}

Tensor copy_of(const TensorView& x) {
  Tensor copy = make_tensor(
      x.dtype, std::span<const std::int64_t>(x.shape.data(), static_cast<std::size_t>(x.rank)));
  const TensorView to = copy.view();
  if (x.numel() == 0) return copy;
  const std::size_t size = size_of(x.dtype);
  const std::int64_t n = x.shape[x.rank - 1];
  for (std::int64_t row = 0; row < row_count(x); ++row) {
    const std::byte* source = row_at(x, row);
    std::byte* target = row_at(to, row);
    for (std::int64_t i = 0; i < n; ++i) {
      std::memcpy(target + i * static_cast<std::int64_t>(size), source + i * row_step(x), size);
    }
  }
  return copy;
}

}  // namespace octavo::workload
