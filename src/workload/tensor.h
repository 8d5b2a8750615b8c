// SPDX-License-Identifier: Apache-2.0
// Host tensors that own their memory, and rows of any float type read and written as FP32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "octavo/tensor.h"

namespace octavo::workload {

/// Allocates on cache-line boundaries, as GPU and SIMD code likes its operands.
template <typename T>
struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};

  AlignedAllocator() = default;
  template <typename U>
  AlignedAllocator(const AlignedAllocator<U>&) {}

  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kAlignment)); }
  void deallocate(T* p, std::size_t) { ::operator delete(p, kAlignment); }
  friend bool operator==(const AlignedAllocator&, const AlignedAllocator&) { return true; }
};

/// A row-major tensor of rank 1 to 4 with its own memory. Views of it stay valid when it is moved.
struct Tensor {
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::vector<std::byte, AlignedAllocator<std::byte>> bytes;

  bool present() const { return !bytes.empty(); }
  TensorView view();
};

/// A tensor of zeros. Throws Error{invalid_argument} for a rank outside 1 to 4, a negative extent
/// or more elements than memory can address.
Tensor make_tensor(DType dtype, std::span<const std::int64_t> shape);
Tensor make_tensor(DType dtype, std::initializer_list<std::int64_t> shape);

/// Sets every byte to 0xFF: NaN in each of the element types, so what nobody writes shows.
void poison(Tensor& x);

/// The number of rows of x: the product of all extents but the last.
std::int64_t row_count(const TensorView& x);

/// The first element of row `row`, rows counted in row-major order of all dimensions but the last.
std::byte* row_at(const TensorView& x, std::int64_t row);

/// Row `row` of x as FP32 (exact for every type). `values` has x.shape[rank - 1] elements.
void load_row(const TensorView& x, std::int64_t row, std::span<float> values);

/// Writes a row, rounding to nearest even; FP8 saturates.
void store_row(const TensorView& x, std::int64_t row, std::span<const float> values);

/// A row-major copy of a view, element type unchanged.
Tensor copy_of(const TensorView& x);

}  // namespace octavo::workload
