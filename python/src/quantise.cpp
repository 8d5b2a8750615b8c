// SPDX-License-Identifier: Apache-2.0
#include "quantise.h"

#include <utility>

#include "octavo/quantize.h"

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

}  // namespace

nb::tuple quantise(nb::handle q, nb::handle k, nb::handle v,
                   const std::vector<std::optional<std::string>>& dtypes, const std::string& layout,
                   const std::string& recipe, std::vector<std::int64_t> key_lengths,
                   std::string engine, int threads) {
  const bool bhsd = is_bhsd(kFunction, layout);
  Arrays arrays;
  const auto operand = [&](const char* name, nb::handle array, std::size_t i) {
    const TensorView x = arrays.read({kFunction, name}, array, dtypes.at(i));
    return bhsd && x.rank == 4 ? transposed(x, 1, 2) : x;
  };
  QuantizeParams params;
  params.q = operand("q", q, 0);
  params.k = operand("k", k, 1);
  params.v = operand("v", v, 2);
  params.recipe = parse_recipe(recipe);
  params.key_lengths = std::move(key_lengths);
  params.engine = std::move(engine);
  params.threads = threads;

  QuantizedQkv result;
  {
    const nb::gil_scoped_release release;
    result = counting_axes(bhsd, [&] { return quantize(params); });
  }
  nb::object shift = nb::none();
  if (params.recipe.smooth_k) {
    const auto& n = params.q.shape;
    shift = owning_array(std::move(result.score_shift),
                         sizes(std::vector<std::int64_t>{n[0], n[2], n[1]}));
  }
  return nb::make_tuple(to_python(result.q), to_python(result.k), to_python(result.v), shift,
                        result.head_dim);
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
