// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "octavo/quantize.h"

namespace octavo::python {

/// One call of quantize() on arrays of Python: all in host memory, or PyTorch's on a CUDA device.
class Quantization {
 public:
  Quantization(nb::handle q, nb::handle k, nb::handle v,
               const std::vector<std::optional<std::string>>& dtypes, const std::string& layout,
               const std::string& recipe, std::vector<std::int64_t> key_lengths, std::string engine,
               int threads, bool torch_cuda);

  /// Returns (q, k, v, score_shift, head_dim) with a tuple (codes [b, s, h, d], descale, name of
  /// the type) an operand, and None for a score_shift that is not there. The arrays own the memory
  /// that the library filled.
  nb::tuple run();

  /// Where tensors are in device memory: bytes of it that run_on_device() needs, for its results.
  std::size_t workspace_bytes() const;

  /// Queues the call on a CUDA stream. As run(), but an operand is (byte of the workspace at which
  /// its codes begin, their padded shape there, valid rows and channels, byte of its descales,
  /// their shape there, name of the type): [b, h, s, d], V [b, h, d, s] in the kernels' order of
  /// keys. score_shift: its byte, or -1.
  nb::tuple run_on_device(std::uintptr_t stream, std::uintptr_t workspace, std::size_t bytes,
                          std::uintptr_t key_lengths) const;

 private:
  bool bhsd_;
  Arrays arrays_;
  QuantizeParams params_;
};

/// FP8 codes [.., .., .., ..] of any framework and any strides as a numpy array of uint8,
/// row-major: numpy itself imports no FP8.
nb::object copy_codes(nb::handle array, const std::optional<std::string>& dtype);

}  // namespace octavo::python
