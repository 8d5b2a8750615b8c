// SPDX-License-Identifier: Apache-2.0
#include "octavo/tensor.h"

#include <utility>

#include "octavo/error.h"

namespace octavo {

const char* dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f8_e4m3: return "f8_e4m3";
    case DType::f8_e5m2: return "f8_e5m2";
    case DType::i8: return "i8";
  }
  return "?";
}

DType parse_dtype(const std::string& name) {
  for (DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2, DType::i8}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  throw Error(ErrorCode::invalid_argument,
              "dtype is '" + name + "'; must be one of f32, f16, bf16, f8_e4m3, f8_e5m2, i8");
}

TensorView contiguous(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                      Device device) {
  if (shape.size() > static_cast<std::size_t>(kMaxRank)) {
    throw Error(ErrorCode::invalid_argument,
                "contiguous: shape has " + std::to_string(shape.size()) +
                    " dimensions; must have at most " + std::to_string(kMaxRank));
  }
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  view.device = device;
  int i = 0;
  for (std::int64_t extent : shape) view.shape[i++] = extent;
  std::int64_t stride = 1;
  for (i = view.rank - 1; i >= 0; --i) {
    view.stride[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

TensorView transposed(TensorView x, int a, int b) {
  std::swap(x.shape[a], x.shape[b]);
  std::swap(x.stride[a], x.stride[b]);
  return x;
}

}  // namespace octavo
