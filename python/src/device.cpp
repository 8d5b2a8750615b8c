// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <algorithm>

#include "octavo/error.h"

namespace octavo::python {

void require_device_engine(const char* function, const std::string& engine) {
  if (engine == "auto" || engine == "sm90") return;
  throw Error(ErrorCode::unsupported, std::string(function) + ": engine is " + engine +
                                          "; must be auto or sm90 for arrays in device memory");
}

}  // namespace octavo::python

#ifdef OCTAVO_WITH_CUDA

#include <cuda_runtime_api.h>

namespace octavo::python {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // not a sticky error: the next call starts clean
  throw Error(ErrorCode::cuda,
              std::string("attention_forward: ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace

CurrentDevice::CurrentDevice(int index) {
  int current = 0;
  check(cudaGetDevice(&current), "reading the current device");
  if (current == index) return;
  check(cudaSetDevice(index), "choosing the arrays' device");
  before_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

StreamBuffer::StreamBuffer(std::size_t bytes, CudaStream stream) : bytes_(bytes), stream_(stream) {
  if (bytes > 0) check(cudaMallocAsync(&data_, bytes, stream), "allocating a workspace");
}

StreamBuffer::~StreamBuffer() {
  if (data_ != nullptr) cudaFreeAsync(data_, stream_);
}

nb::object empty_on_device(const std::vector<std::int64_t>& shape, const std::string& dtype,
                           int index) {
  const DType type = parse_dtype(dtype);
  std::size_t elements = 1;
  for (const std::int64_t n : shape) elements *= static_cast<std::size_t>(n);
  const CurrentDevice current(index);
  void* data = nullptr;
  // Not in a stream's order: whoever takes it may use it on any stream.
  check(cudaMalloc(&data, std::max<std::size_t>(elements * size_of(type), 1)),
        "allocating the output");
  const nb::capsule owner(data, [](void* p) noexcept { cudaFree(p); });
  const std::vector<std::size_t> sizes(shape.begin(), shape.end());
  return nb::cast(nb::ndarray<>(data, sizes.size(), sizes.data(), owner, nullptr,
                                dlpack_dtype(type), nb::device::cuda::value, index));
}

}  // namespace octavo::python

#else

namespace octavo::python {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported,
              "attention_forward: q is in device memory; must be in host memory, since this octavo "
              "was built without CUDA");
}

}  // namespace

CurrentDevice::CurrentDevice(int) { refuse(); }
CurrentDevice::~CurrentDevice() = default;
StreamBuffer::StreamBuffer(std::size_t bytes, CudaStream stream) : bytes_(bytes), stream_(stream) {
  refuse();
}
StreamBuffer::~StreamBuffer() = default;
nb::object empty_on_device(const std::vector<std::int64_t>&, const std::string&, int) { refuse(); }

}  // namespace octavo::python

#endif
