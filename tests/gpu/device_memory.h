// SPDX-License-Identifier: Apache-2.0
// Device memory for tests: poisoned at birth, with guard bytes behind it.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sm90/check.h"

namespace octavo::test {

class DeviceBytes {
 public:
  static constexpr std::size_t kGuard = 4096;
  static constexpr std::uint8_t kPoison = 0xff;  // NaN in every type

  explicit DeviceBytes(std::size_t bytes) : bytes_(bytes) {
    sm90::check(cudaMalloc(&data_, bytes + kGuard), "allocating test memory");
    poison();
  }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void* get() const { return data_; }
  std::size_t size() const { return bytes_; }
  void poison() const {
    sm90::check(cudaMemset(data_, kPoison, bytes_ + kGuard), "poisoning test memory");
  }
  void upload(const void* host, std::size_t bytes, std::size_t offset = 0) const {
    sm90::check(
        cudaMemcpy(static_cast<std::byte*>(data_) + offset, host, bytes, cudaMemcpyHostToDevice),
        "uploading test data");
  }
  void expect_guard_untouched() const {
    std::vector<std::uint8_t> guard(kGuard);
    sm90::check(cudaMemcpy(guard.data(), static_cast<std::byte*>(data_) + bytes_, kGuard,
                           cudaMemcpyDeviceToHost),
                "reading the guard");
    for (std::uint8_t byte : guard) ASSERT_EQ(byte, kPoison) << "written beyond the end";
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

template <typename T>
std::vector<T> download(const T* device, std::int64_t count) {
  std::vector<T> host(static_cast<std::size_t>(count));
  sm90::check(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost),
              "downloading test data");
  return host;
}

}  // namespace octavo::test
