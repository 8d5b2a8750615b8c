// SPDX-License-Identifier: Apache-2.0
// What the package itself asks of CUDA. In a library built without it each throws
// Error{unsupported}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "arrays.h"
#include "octavo/cuda.h"

namespace octavo::python {

/// Throws Error{unsupported} unless this engine takes arrays in device memory.
void require_device_engine(const char* function, const std::string& engine);

/// Makes a device the calling thread's current one while it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;  // -1: it was current already
};

/// Device memory that is allocated and freed in a stream's order.
class StreamBuffer {
 public:
  StreamBuffer(std::size_t bytes, CudaStream stream);
  ~StreamBuffer();
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  CudaStream stream_;
  void* data_ = nullptr;
};

/// A new array in the memory of CUDA device `index`, for any framework with DLPack.
nb::object empty_on_device(const std::vector<std::int64_t>& shape, const std::string& dtype,
                           int index);

}  // namespace octavo::python
