// SPDX-License-Identifier: Apache-2.0
#include "io/row_major.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "io/sentence.h"
#include "octavo/error.h"

namespace octavo::io {
namespace {

// Large enough that system calls do not show, small enough for the L2 cache.
constexpr std::int64_t kBufferBytes = std::int64_t{1} << 18;

std::span<const std::int64_t> shape_of(const TensorView& view) {
  return {view.shape.data(), static_cast<std::size_t>(view.rank)};
}

bool is_packed(const TensorView& view) {
  std::int64_t expected = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    if (view.shape[i] != 1 && view.stride[i] != expected) return false;
    expected *= view.shape[i];
  }
  return true;
}

/// Collects strided elements into full buffers.
class Packer {
 public:
  Packer(AtomicFile& file, std::int64_t element_size)
      : file_(file), size_(element_size), buffer_(static_cast<std::size_t>(kBufferBytes)) {}

  void row(const std::byte* first, std::int64_t count, std::int64_t stride) {
    while (count > 0) {
      const std::int64_t n = std::min(count, (kBufferBytes - used_) / size_);
      copy(first, n, stride);
      used_ += n * size_;
      count -= n;
      if (kBufferBytes - used_ < size_) flush();
      if (count > 0) first += n * stride * size_;
    }
  }

  void flush() {
    file_.write(buffer_.data(), static_cast<std::size_t>(used_));
    used_ = 0;
  }

 private:
  void copy(const std::byte* from, std::int64_t count, std::int64_t stride) {
    std::byte* to = buffer_.data() + used_;
    if (stride == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(count * size_));
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * size_, from + i * stride * size_, static_cast<std::size_t>(size_));
    }
  }

  AtomicFile& file_;
  std::int64_t size_;
  std::int64_t used_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t dim : shape) {
    empty = empty || dim == 0;
    if (dim == 0) continue;
    if (count > kMaxElements / dim) return std::nullopt;
    count *= dim;
  }
  return empty ? 0 : count;
}

TensorView row_major_view(const std::byte* data, DType dtype, std::span<const std::int64_t> shape) {
  TensorView view;
  view.data = const_cast<std::byte*>(data);  // TensorView has no read-only twin
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = shape[i];
    view.stride[i] = stride;
    stride *= shape[i];
  }
  return view;
}

const std::byte* aligned_bytes(std::span<const std::byte> bytes, DType dtype,
                               std::unique_ptr<std::byte[]>& copy) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % size_of(dtype) == 0) return bytes.data();
  copy = std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(bytes.size(), 1));
  std::copy(bytes.begin(), bytes.end(), copy.get());
  return copy.get();
}

void check_writable(const std::string& what, const TensorView& view) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorCode::invalid_argument, what + " " + reason);
  };
  if (view.device.kind != Device::Kind::cpu) refuse("is in GPU memory; must be in CPU memory");
  if (view.rank < 0 || view.rank > kMaxRank) {
    refuse("has rank " + std::to_string(view.rank) + "; must be 0 to " + std::to_string(kMaxRank));
  }
  const auto shape = shape_of(view);
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t dim) { return dim < 0; })) {
    refuse("has shape " + shape_text(shape) + "; no dimension may be negative");
  }
  const auto count = element_count(shape);
  if (!count) {
    refuse("has shape " + shape_text(shape) + "; must have at most " +
           std::to_string(kMaxElements) + " elements");
  }
  // Not present(): that calls every rank of 0 absent, and here a scalar is a tensor.
  if (view.data == nullptr && *count > 0) refuse("has a null data pointer; must point to elements");
}

std::int64_t packed_size(const TensorView& view) {
  return view.numel() * static_cast<std::int64_t>(size_of(view.dtype));
}

void write_row_major(AtomicFile& file, const TensorView& view) {
  const std::int64_t bytes = packed_size(view);
  if (bytes == 0) return;
  const auto* data = static_cast<const std::byte*>(view.data);
  if (is_packed(view)) {
    file.write(data, static_cast<std::size_t>(bytes));
    return;
  }
  // Rank 4 with leading dimensions of 1: the loops need no cases.
  std::array<std::int64_t, kMaxRank> shape{1, 1, 1, 1};
  std::array<std::int64_t, kMaxRank> stride{};
  static_assert(kMaxRank == 4, "one loop per dimension below");
  std::copy_n(view.shape.begin(), view.rank, shape.end() - view.rank);
  std::copy_n(view.stride.begin(), view.rank, stride.end() - view.rank);
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  Packer packer(file, size);
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    for (std::int64_t j = 0; j < shape[1]; ++j) {
      for (std::int64_t k = 0; k < shape[2]; ++k) {
        const std::int64_t offset = i * stride[0] + j * stride[1] + k * stride[2];
        packer.row(data + offset * size, shape[3], stride[3]);
      }
    }
  }
  packer.flush();
}

}  // namespace octavo::io
