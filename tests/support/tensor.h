// SPDX-License-Identifier: Apache-2.0
// Tensors that own their memory, element access in any dtype, and poison.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/load.h"
#include "octavo/tensor.h"

namespace octavo::test {

/// A row-major tensor. Views of it stay valid when it is moved.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, std::vector<std::int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
    bytes_.resize(static_cast<std::size_t>(numel()) * size_of(dtype));
  }
  Tensor(DType dtype, std::vector<std::int64_t> shape, std::span<const float> values)
      : Tensor(dtype, std::move(shape)) {
    for (std::int64_t i = 0; i < numel(); ++i) set(i, values[static_cast<std::size_t>(i)]);
  }

  DType dtype() const { return dtype_; }
  std::int64_t extent(int i) const { return shape_[static_cast<std::size_t>(i)]; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t numel() const {
    std::int64_t n = shape_.empty() ? 0 : 1;
    for (const std::int64_t extent : shape_) n *= extent;
    return n;
  }

  TensorView view() {
    TensorView x;
    x.data = bytes_.data();
    x.dtype = dtype_;
    x.rank = static_cast<int>(shape_.size());
    std::int64_t stride = 1;
    for (int i = x.rank - 1; i >= 0; --i) {
      x.shape[static_cast<std::size_t>(i)] = extent(i);
      x.stride[static_cast<std::size_t>(i)] = stride;
      stride *= extent(i);
    }
    return x;
  }

  /// The row-major index of element [i, j, k, l].
  std::int64_t at(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l = 0) const {
    std::int64_t index = (i * extent(1) + j) * extent(2) + k;
    if (shape_.size() == 4) index = index * extent(3) + l;
    return index;
  }

  float get(std::int64_t i) const { return load_element(bytes_.data(), dtype_, i); }
  void set(std::int64_t i, float x) { store_element(bytes_.data(), dtype_, i, x); }

  /// All elements in FP32, which holds every element type exactly.
  std::vector<float> values() const {
    std::vector<float> out(static_cast<std::size_t>(numel()));
    for (std::int64_t i = 0; i < numel(); ++i) out[static_cast<std::size_t>(i)] = get(i);
    return out;
  }

  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  /// Every bit set: NaN in each of the element types, so what nobody writes shows.
  void poison() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0xff}); }
  bool is_poisoned() const {
    for (const std::byte x : bytes_) {
      if (x != std::byte{0xff}) return false;
    }
    return true;
  }

 private:
  DType dtype_ = DType::f32;
  std::vector<std::int64_t> shape_;
  std::vector<std::byte> bytes_;
};

/// Rows [first, last) along dimension 1 of a [b, s, ..] tensor, copied.
inline Tensor rows_of(const Tensor& x, std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> shape = x.shape();
  std::int64_t row = 1;
  for (std::size_t i = 2; i < shape.size(); ++i) row *= shape[i];
  shape[1] = last - first;
  Tensor out(x.dtype(), shape);
  for (std::int64_t b = 0; b < x.extent(0); ++b) {
    for (std::int64_t i = 0; i < (last - first) * row; ++i) {
      out.set(b * (last - first) * row + i, x.get((b * x.extent(1) + first) * row + i));
    }
  }
  return out;
}

/// The same bits.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin());
}

}  // namespace octavo::test
