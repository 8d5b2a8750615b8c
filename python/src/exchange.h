// SPDX-License-Identifier: Apache-2.0
// A framework's tensors by its DLPack functions in C (DLPack 1.2, type attribute
// __dlpack_c_exchange_api__): views, new tensors and the current stream without a call of Python,
// which would cost more than the launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "octavo/cuda.h"

namespace octavo::python {

struct ManagedTensor;  // DLManagedTensorVersioned
struct ExchangeTable;  // DLPackExchangeAPI

class Exchange {
 public:
  /// That of a tensor's type; nothing where the type has none, or none that gives all of this.
  static std::optional<Exchange> of(nb::handle type);

  /// A view of a tensor, which the caller keeps alive.
  TensorView view(const Argument& argument, nb::handle tensor,
                  const std::optional<std::string>& stated) const;

  /// A new contiguous tensor on a CUDA device.
  nb::object empty(std::vector<std::int64_t> shape, DType dtype, int device) const;

  /// The stream of a CUDA device that the framework queues its work on now.
  CudaStream current_stream(int device) const;

  /// Bytes on a CUDA device, from the framework's allocator and for its current stream: freed
  /// memory is used again only by what is queued there later.
  class Buffer {
   public:
    Buffer(const Exchange& exchange, std::size_t bytes, int device);
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void* data() const;

   private:
    ManagedTensor* memory_ = nullptr;
  };

 private:
  explicit Exchange(const ExchangeTable& table) : table_(&table) {}
  ManagedTensor* allocate(std::int64_t* shape, int rank, nb::dlpack::dtype dtype, int device) const;

  const ExchangeTable* table_;  // the framework's, for the life of the process
};

}  // namespace octavo::python
