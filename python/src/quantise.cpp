// SPDX-License-Identifier: Apache-2.0
#include "quantise.h"

#include <nanobind/stl/vector.h>

#include <utility>

#include "device.h"
#include "octavo/cuda.h"

namespace octavo::python {
namespace {

constexpr const char* kFunction = "quantize";

/// A numpy array that takes over a vector.
template <typename T>
nb::object owning_array(std::vector<T>&& data, const std::vector<std::size_t>& shape) {
  auto* kept = new std::vector<T>(std::move(data));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape.size(), shape.data(), owner));
}

template <typename Extents>
std::vector<std::size_t> sizes(const Extents& extents) {
  return {extents.begin(), extents.end()};
}

nb::tuple to_python(QuantizedTensor& x) {
  return nb::make_tuple(owning_array(std::move(x.codes), sizes(x.shape)),
                        owning_array(std::move(x.descale), sizes(x.descale_shape)),
                        dtype_name(x.dtype));
}

/// Where results lie in a workspace.
class Places {
 public:
  explicit Places(std::uintptr_t workspace) : workspace_(workspace) {}

  std::int64_t offset(const void* x) const {
    if (x == nullptr) return -1;
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x) - workspace_);
  }

  nb::tuple rows(const DeviceOperand& x, bool rotated) const {
    return operand(x, {x.b, x.h, x.padded_rows, x.padded_d}, rotated ? x.padded_d : x.d);
  }
  nb::tuple transposed_rows(const DeviceOperand& x) const {
    return operand(x, {x.b, x.h, x.padded_d, x.padded_rows}, x.d);
  }

 private:
  nb::tuple operand(const DeviceOperand& x, const std::vector<std::int64_t>& codes,
                    std::int64_t d) const {
    return nb::make_tuple(offset(x.codes), nb::cast(codes), x.rows, d, offset(x.descale),
                          nb::cast(x.descale_shape()), dtype_name(x.dtype));
  }

  std::uintptr_t workspace_;
};

}  // namespace

Quantization::Quantization(nb::handle q, nb::handle k, nb::handle v,
                           const std::vector<std::optional<std::string>>& dtypes,
                           const std::string& layout, const std::string& recipe,
                           std::vector<std::int64_t> key_lengths, std::string engine, int threads,
                           bool torch_cuda)
    : bhsd_(is_bhsd(kFunction, layout)) {
  const auto operand = [&](const char* name, nb::handle array, std::size_t i) {
    const Argument argument{kFunction, name};
    const TensorView x = torch_cuda ? torch_view(argument, array, dtypes.at(i))
                                    : arrays_.read(argument, array, dtypes.at(i));
    return bhsd_ && x.rank == 4 ? transposed(x, 1, 2) : x;
  };
  params_.q = operand("q", q, 0);
  params_.k = operand("k", k, 1);
  params_.v = operand("v", v, 2);
  params_.recipe = parse_recipe(recipe);
  params_.key_lengths = std::move(key_lengths);
  params_.engine = std::move(engine);
  params_.threads = threads;
}

nb::tuple Quantization::run() {
  QuantizedQkv result;
  {
    const nb::gil_scoped_release release;
    result = counting_axes(bhsd_, [&] { return quantize(params_); });
  }
  nb::object shift = nb::none();
  if (params_.recipe.smooth_k) {
    const auto& n = params_.q.shape;
    shift = owning_array(std::move(result.score_shift),
                         sizes(std::vector<std::int64_t>{n[0], n[2], n[1]}));
  }
  return nb::make_tuple(to_python(result.q), to_python(result.k), to_python(result.v), shift,
                        result.head_dim);
}

std::size_t Quantization::workspace_bytes() const {
  return counting_axes(bhsd_, [&] { return quantize_workspace_bytes(params_); });
}

nb::tuple Quantization::run_on_device(std::uintptr_t stream, std::uintptr_t workspace,
                                      std::size_t bytes, std::uintptr_t key_lengths) const {
  require_device_engine(kFunction, params_.engine);
  DeviceQkv result;
  {
    const nb::gil_scoped_release release;
    const CurrentDevice current(params_.q.device.index);
    result = counting_axes(bhsd_, [&] {
      return quantize_on_device(params_, reinterpret_cast<void*>(workspace), bytes,
                                reinterpret_cast<CudaStream>(stream),
                                reinterpret_cast<const std::int32_t*>(key_lengths));
    });
  }
  const Places at(workspace);
  const bool rotated = params_.recipe.rotate;
  return nb::make_tuple(at.rows(result.q, rotated), at.rows(result.k, rotated),
                        at.transposed_rows(result.v), at.offset(result.score_shift),
                        params_.q.shape[3]);
}

nb::object copy_codes(nb::handle array, const std::optional<std::string>& dtype) {
  Arrays arrays;
  const TensorView x = arrays.read({"dequantize", "codes"}, array, dtype);
  const auto* from = static_cast<const std::uint8_t*>(x.data);
  std::vector<std::uint8_t> codes;
  codes.reserve(static_cast<std::size_t>(x.numel()));
  for (std::int64_t i = 0; i < x.shape[0]; ++i) {
    for (std::int64_t j = 0; j < x.shape[1]; ++j) {
      for (std::int64_t k = 0; k < x.shape[2]; ++k) {
        const std::int64_t row = i * x.stride[0] + j * x.stride[1] + k * x.stride[2];
        for (std::int64_t c = 0; c < x.shape[3]; ++c) codes.push_back(from[row + c * x.stride[3]]);
      }
    }
  }
  return owning_array(std::move(codes), sizes(x.shape));
}

}  // namespace octavo::python
