// SPDX-License-Identifier: Apache-2.0
// One attention call, filled in from Python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "exchange.h"
#include "octavo/attention.h"

namespace octavo::python {

class Call {
 public:
  Call(const std::string& layout, std::pair<std::int64_t, std::int64_t> window, double softcap,
       std::optional<double> sm_scale, const std::string& precision,
       const std::optional<std::string>& recipe, const std::string& softmax,
       const std::string& accumulator, int promote_every, int num_splits, std::string engine,
       int threads);

  /// A call of the same settings whose tensors are yet to be set.
  Call fresh(std::vector<std::int64_t> key_lengths) const;

  /// Sets the tensor of that name in AttentionParams. Returns its shape, as the caller counts axes,
  /// and the name of its type.
  nb::tuple set(const std::string& name, nb::handle array, const std::optional<std::string>& dtype);

  /// The same of a PyTorch tensor on a CUDA device, which the caller keeps alive; without DLPack,
  /// which would cost more than the call.
  nb::tuple set_torch(const std::string& name, nb::handle tensor,
                      const std::optional<std::string>& dtype);

  /// The whole call on a CUDA device: views of the tensors, all of one framework with an Exchange
  /// (exchange.h), their outputs, a workspace and the launches on the framework's current stream.
  /// Returns out, made here where it is None, or (out, lse).
  nb::object attend(nb::handle q, nb::handle k, nb::handle v, nb::handle out,
                    const std::optional<std::string>& out_dtype, bool return_lse);

  /// Computes; other threads of Python run meanwhile. Returns the name of the engine.
  std::string run() const;

  /// Where tensors are in device memory: bytes of it that run_on_device() needs beside them.
  std::size_t workspace_bytes() const;

  /// Queues the call on a CUDA stream of the tensors' device. The workspace is needed until it has
  /// run; with none it is allocated and freed in the stream's order. key_lengths: int32 [b] in
  /// device memory, or 0.
  void run_on_device(std::uintptr_t stream, std::uintptr_t workspace, std::size_t bytes,
                     std::uintptr_t key_lengths) const;

  /// Empty where the engine (or under "auto" any automatic one) computes this call; else why not.
  std::string why_unsupported() const;

 private:
  Call() = default;
  void assign(const std::string& name, const TensorView& view);
  TensorView set_exchanged(const Exchange& exchange, const char* name, nb::handle tensor,
                           const std::optional<std::string>& dtype);

  bool bhsd_ = false;
  Arrays arrays_{Memory::host_or_cuda};
  AttentionParams params_;
};

}  // namespace octavo::python
