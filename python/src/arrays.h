// SPDX-License-Identifier: Apache-2.0
// Arrays of Python (DLPack or the buffer protocol) as the library's views, without copies.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/error.h"
#include "octavo/tensor.h"

namespace octavo::python {

namespace nb = nanobind;

/// Who asks for an array, under which name: both go into the sentences of errors.
struct Argument {
  const char* function;
  std::string name;
};

/// Which memory arrays may be in.
enum class Memory : std::uint8_t { host, host_or_cuda };

/// The arrays of one call: alive as long as this is.
class Arrays {
 public:
  explicit Arrays(Memory memory = Memory::host) : memory_(memory) {}

  /// A view to read from. `stated` names the element type where the array's own is uint8 or uint16.
  /// Throws nb::type_error for what is no array, Error for one that the library cannot take.
  TensorView read(const Argument& argument, nb::handle array,
                  const std::optional<std::string>& stated);

  /// The same, to write into.
  TensorView write(const Argument& argument, nb::handle array,
                   const std::optional<std::string>& stated);

 private:
  template <typename NdArray>
  TensorView view_of(const Argument& argument, const NdArray& array,
                     const std::optional<std::string>& stated) const;

  Memory memory_;
  std::vector<nb::ndarray<nb::ro>> read_;
  std::vector<nb::ndarray<>> written_;
};

/// A view of an array that DLPack describes.
TensorView view_of(const Argument& argument, const nb::dlpack::dltensor& array,
                   const std::optional<std::string>& stated, Memory memory);

/// DLPack's name of a type.
nb::dlpack::dtype dlpack_dtype(DType dtype);

/// A view of a PyTorch tensor on a CUDA device, from its attributes.
TensorView torch_view(const Argument& argument, nb::handle tensor,
                      const std::optional<std::string>& stated);

/// (shape, name of the type).
nb::tuple describe(const TensorView& view);

/// Whether a layout is [b, h, s, d] rather than [b, s, h, d].
bool is_bhsd(const char* function, const std::string& layout);

/// body(), whose errors count the axes of [b, s, h, d]: they say so where the caller's are others.
template <typename Body>
auto counting_axes(bool bhsd, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    if (!bhsd || error.code() != ErrorCode::invalid_argument) throw;
    throw Error(error.code(), std::string(error.what()) + " (axes counted in [b, s, h, d])");
  }
}

}  // namespace octavo::python
