// SPDX-License-Identifier: Apache-2.0
#include "arrays.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace octavo::python {
namespace {

constexpr const char* kTypes = "f32, f16, bf16, f8_e4m3, f8_e5m2 or i8";

[[noreturn]] void refuse(const Argument& argument, const std::string& rest) {
  throw Error(ErrorCode::invalid_argument,
              std::string(argument.function) + ": " + argument.name + rest);
}

bool is(nb::dlpack::dtype type, nb::dlpack::dtype_code code, int bits) {
  return type.lanes == 1 && type.bits == bits && type.code == static_cast<std::uint8_t>(code);
}

/// The library's type of an array that says what its elements are.
std::optional<DType> own_dtype(nb::dlpack::dtype type) {
  for (const DType own :
       {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2, DType::i8}) {
    const nb::dlpack::dtype named = dlpack_dtype(own);
    if (named.code == type.code && named.bits == type.bits && named.lanes == type.lanes) return own;
  }
  return std::nullopt;
}

std::string type_text(nb::dlpack::dtype type) {
  static constexpr const char* kNames[] = {"int",    "uint",    "float", "handle",
                                           "bfloat", "complex", "bool"};
  if (type.code >= std::size(kNames) || type.lanes != 1) {
    return "DLPack type " + std::to_string(type.code) + " of " + std::to_string(type.bits) +
           " bits";
  }
  if (is(type, nb::dlpack::dtype_code::Bool, 8)) return "bool";
  return kNames[type.code] + std::to_string(type.bits);
}

DType resolve_dtype(const Argument& argument, nb::dlpack::dtype type,
                    const std::optional<std::string>& stated) {
  const auto own = own_dtype(type);
  if (!stated) {
    if (own) return *own;
    const bool bytes =
        is(type, nb::dlpack::dtype_code::UInt, 8) || is(type, nb::dlpack::dtype_code::UInt, 16);
    refuse(argument, ".dtype is " + type_text(type) + "; must be " + kTypes +
                         (bytes ? ", or dtype must say which of them it holds" : ""));
  }
  const DType wanted = parse_dtype(*stated);
  if (own ? *own == wanted
          : is(type, nb::dlpack::dtype_code::UInt, static_cast<int>(8 * size_of(wanted)))) {
    return wanted;
  }
  refuse(argument, ".dtype is " + (own ? dtype_name(*own) : type_text(type)) + "; must be " +
                       dtype_name(wanted) + ", as dtype says, or its bytes (uint8, uint16)");
}

Device device_of(const Argument& argument, int type, int index, Memory memory) {
  if (type == nb::device::cpu::value || type == nb::device::cuda_host::value) return {};
  const bool cuda = type == nb::device::cuda::value || type == nb::device::cuda_managed::value;
  if (cuda && memory == Memory::host_or_cuda) return {Device::Kind::cuda, index};
  throw Error(ErrorCode::unsupported,
              std::string(argument.function) + ": " + argument.name +
                  " is in device memory (DLPack device type " + std::to_string(type) +
                  "); must be in host memory" +
                  (memory == Memory::host_or_cuda ? " or that of a CUDA device" : ""));
}

void require_rank(const Argument& argument, std::size_t rank) {
  if (rank >= 1 && rank <= kMaxRank) return;
  refuse(argument,
         ".rank is " + std::to_string(rank) + "; must be from 1 to " + std::to_string(kMaxRank));
}

std::array<std::int64_t, kMaxRank> row_major(const TensorView& view) {
  std::array<std::int64_t, kMaxRank> stride{};
  std::int64_t next = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    stride[i] = next;
    next *= view.shape[i];
  }
  return stride;
}

[[noreturn]] void refuse_type(const Argument& argument, nb::handle array) {
  const std::string sentence = std::string(argument.function) + ": " + argument.name + " is a " +
                               nb::type_name(array.type()).c_str() +
                               "; must be an array with DLPack or a buffer, with strides in whole "
                               "elements";
  throw nb::type_error(sentence.c_str());
}

}  // namespace

TensorView view_of(const Argument& argument, const nb::dlpack::dltensor& array,
                   const std::optional<std::string>& stated, Memory memory) {
  TensorView view;
  view.device = device_of(argument, array.device.device_type, array.device.device_id, memory);
  require_rank(argument, static_cast<std::size_t>(array.ndim));
  view.dtype = resolve_dtype(argument, array.dtype, stated);
  view.data = static_cast<std::byte*>(array.data) + array.byte_offset;
  view.rank = array.ndim;
  std::copy_n(array.shape, view.rank, view.shape.begin());
  if (array.strides != nullptr) {
    std::copy_n(array.strides, view.rank, view.stride.begin());
  } else {
    view.stride = row_major(view);
  }
  return view;
}

template <typename NdArray>
TensorView Arrays::view_of(const Argument& argument, const NdArray& array,
                           const std::optional<std::string>& stated) const {
  nb::dlpack::dltensor described;
  described.data = const_cast<void*>(static_cast<const void*>(array.data()));
  described.device = {array.device_type(), array.device_id()};
  described.ndim = static_cast<std::int32_t>(array.ndim());
  described.dtype = array.dtype();
  described.shape = const_cast<std::int64_t*>(array.shape_ptr());
  described.strides = const_cast<std::int64_t*>(array.stride_ptr());
  TensorView view = python::view_of(argument, described, stated, memory_);
  if (view.numel() == 0) view.stride = row_major(view);  // numpy's are 0 there
  if (view.numel() > 0 && reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.dtype) != 0) {
    refuse(argument, ".data is not aligned; must be at a multiple of its elements' " +
                         std::to_string(size_of(view.dtype)) + " bytes");
  }
  return view;
}

TensorView Arrays::read(const Argument& argument, nb::handle array,
                        const std::optional<std::string>& stated) {
  nb::ndarray<nb::ro> imported;
  if (!nb::try_cast(array, imported)) refuse_type(argument, array);
  const TensorView view = view_of(argument, imported, stated);
  read_.push_back(std::move(imported));
  return view;
}

TensorView Arrays::write(const Argument& argument, nb::handle array,
                         const std::optional<std::string>& stated) {
  nb::ndarray<> imported;
  if (!nb::try_cast(array, imported)) {
    nb::ndarray<nb::ro> read_only;
    if (!nb::try_cast(array, read_only)) refuse_type(argument, array);
    refuse(argument, " is read-only; must be writable");
  }
  const TensorView view = view_of(argument, imported, stated);
  written_.push_back(std::move(imported));
  return view;
}

namespace {

/// DLPack's name of a torch.dtype. Those objects are few and live as long as the process, so that
/// each is asked for its own name only once.
nb::dlpack::dtype torch_dtype(const Argument& argument, nb::handle dtype) {
  static std::vector<std::pair<PyObject*, nb::dlpack::dtype>> known;
  for (const auto& [object, type] : known) {
    if (object == dtype.ptr()) return type;
  }
  const auto bytes = [](int bits) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt),
                             static_cast<std::uint8_t>(bits), 1};
  };
  const std::pair<const char*, nb::dlpack::dtype> names[] = {
      {"torch.float32", dlpack_dtype(DType::f32)},
      {"torch.float16", dlpack_dtype(DType::f16)},
      {"torch.bfloat16", dlpack_dtype(DType::bf16)},
      {"torch.float8_e4m3fn", dlpack_dtype(DType::f8_e4m3)},
      {"torch.float8_e5m2", dlpack_dtype(DType::f8_e5m2)},
      {"torch.int8", dlpack_dtype(DType::i8)},
      {"torch.uint8", bytes(8)},
      {"torch.uint16", bytes(16)},
  };
  const std::string name = nb::cast<std::string>(nb::str(dtype));
  for (const auto& [known_name, type] : names) {
    if (name != known_name) continue;
    known.emplace_back(dtype.ptr(), type);
    return type;
  }
  refuse(argument, ".dtype is " + name + "; must be " + kTypes);
}

}  // namespace

TensorView torch_view(const Argument& argument, nb::handle tensor,
                      const std::optional<std::string>& stated) {
  TensorView view;
  const nb::tuple shape(tensor.attr("shape")), strides(tensor.attr("stride")());
  require_rank(argument, shape.size());
  view.dtype = resolve_dtype(argument, torch_dtype(argument, tensor.attr("dtype")), stated);
  view.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(tensor.attr("data_ptr")()));
  view.rank = static_cast<int>(shape.size());
  for (int i = 0; i < view.rank; ++i) {
    view.shape[i] = nb::cast<std::int64_t>(shape[i]);
    view.stride[i] = nb::cast<std::int64_t>(strides[i]);
  }
  view.device = {Device::Kind::cuda, nb::cast<int>(tensor.attr("get_device")())};
  return view;
}

nb::dlpack::dtype dlpack_dtype(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto of = [&](Code code) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(code),
                             static_cast<std::uint8_t>(8 * size_of(dtype)), 1};
  };
  switch (dtype) {
    case DType::bf16: return of(Code::Bfloat);
    case DType::f8_e4m3: return of(Code::Float8_E4M3FN);
    case DType::f8_e5m2: return of(Code::Float8_E5M2);
    case DType::i8: return of(Code::Int);
    default: return of(Code::Float);
  }
}

nb::tuple describe(const TensorView& view) {
  nb::list shape;
  for (int i = 0; i < view.rank; ++i) shape.append(view.shape[i]);
  return nb::make_tuple(nb::tuple(shape), dtype_name(view.dtype));
}

bool is_bhsd(const char* function, const std::string& layout) {
  if (layout == "bhsd") return true;
  if (layout == "bshd") return false;
  throw Error(ErrorCode::invalid_argument,
              std::string(function) + ": layout is '" + layout + "'; must be bshd or bhsd");
}

}  // namespace octavo::python
