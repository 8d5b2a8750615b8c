// SPDX-License-Identifier: Apache-2.0
#include "sm90/host_tensors.h"

#include <algorithm>
#include <cstring>

#include "core/problem.h"
#include "sm90/check.h"

namespace octavo::sm90 {
namespace {

void copy_to_device(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the device");
}

/// The same tensor with leading dimensions of extent 1 up to rank 4.
TensorView as_rank_4(TensorView x) {
  while (x.rank < 4) {
    for (auto i = static_cast<std::size_t>(x.rank); i > 0; --i) {
      x.shape[i] = x.shape[i - 1];
      x.stride[i] = x.stride[i - 1];
    }
    x.shape[0] = 1;
    x.stride[0] = 0;
    ++x.rank;
  }
  return x;
}

std::size_t bytes_of(const TensorView& x) {
  return static_cast<std::size_t>(x.numel()) * size_of(x.dtype);
}

/// Calls visit(row, packed offset in bytes, bytes) for every row along the last dimension.
template <typename Visit>
void each_row(const TensorView& x, Visit visit) {
  const TensorView as4 = as_rank_4(x);
  const std::size_t row_bytes = static_cast<std::size_t>(as4.shape[3]) * size_of(x.dtype);
  std::size_t at = 0;
  for (std::int64_t b = 0; b < as4.shape[0]; ++b) {
    for (std::int64_t s = 0; s < as4.shape[1]; ++s) {
      for (std::int64_t h = 0; h < as4.shape[2]; ++h, at += row_bytes) {
        visit(row_pointer(as4, b, s, h), at, row_bytes);
      }
    }
  }
}

}  // namespace

DeviceMemory allocate(std::size_t bytes) {
  void* p = nullptr;
  check(cudaMalloc(&p, std::max<std::size_t>(bytes, 1)), "allocating device memory");
  return DeviceMemory(p);
}

TensorView Uploads::reserve(const TensorView& x) {
  owned_.push_back(allocate(bytes_of(x)));
  TensorView out = x;
  out.data = owned_.back().get();
  out.device = {Device::Kind::cuda, 0};
  std::int64_t stride = 1;
  for (auto i = static_cast<std::size_t>(x.rank); i-- > 0;) {
    out.stride[i] = stride;
    stride *= x.shape[i];
  }
  return out;
}

TensorView Uploads::add(const TensorView& x) {
  const TensorView out = reserve(x);
  std::vector<std::byte> packed(bytes_of(x));
  each_row(x, [&](const std::byte* row, std::size_t at, std::size_t bytes) {
    std::memcpy(packed.data() + at, row, bytes);
  });
  copy_to_device(out.data, packed.data(), packed.size());
  return out;
}

DescaleMap Uploads::add(const DescaleMap& x, std::int64_t b, std::int64_t h, std::int64_t rows) {
  if (b == 0 || h == 0) return x;
  const std::int64_t blocks = std::max<std::int64_t>(ceil_div(rows, x.rows_per_block), 1);
  const std::int64_t entries = (b - 1) * x.stride_b + (h - 1) / x.heads_per_entry * x.stride_h +
                               (blocks - 1) * x.stride_block + 1;
  const std::size_t bytes = static_cast<std::size_t>(entries) * sizeof(float);
  owned_.push_back(allocate(bytes));
  copy_to_device(owned_.back().get(), x.data, bytes);
  DescaleMap out = x;
  out.data = static_cast<const float*>(owned_.back().get());
  return out;
}

void download(const TensorView& device, const TensorView& host) {
  std::vector<std::byte> packed(bytes_of(device));
  check(cudaMemcpy(packed.data(), device.data, packed.size(), cudaMemcpyDeviceToHost),
        "copying from the device");
  each_row(host, [&](std::byte* row, std::size_t at, std::size_t bytes) {
    std::memcpy(row, packed.data() + at, bytes);
  });
}

}  // namespace octavo::sm90
