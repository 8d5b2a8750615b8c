// SPDX-License-Identifier: Apache-2.0
// Copies of host tensors in device memory, and back: for files, checks and the command line.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "core/quant_block.h"
#include "octavo/tensor.h"

namespace octavo::sm90 {

struct FreeDeviceMemory {
  void operator()(void* p) const { cudaFree(p); }
};
using DeviceMemory = std::unique_ptr<void, FreeDeviceMemory>;

DeviceMemory allocate(std::size_t bytes);

/// Owns what it uploads.
class Uploads {
 public:
  /// A contiguous copy of a tensor of rank 4 or less.
  TensorView add(const TensorView& x);
  /// The same entries under the same strides, of an operand [b, h, rows].
  DescaleMap add(const DescaleMap& x, std::int64_t b, std::int64_t h, std::int64_t rows);
  /// Contiguous memory of the tensor's shape and type, uninitialised.
  TensorView reserve(const TensorView& x);

 private:
  std::vector<DeviceMemory> owned_;
};

/// Copies a contiguous device tensor into a host tensor of the same shape and any strides.
void download(const TensorView& device, const TensorView& host);

}  // namespace octavo::sm90
