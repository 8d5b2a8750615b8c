// SPDX-License-Identifier: Apache-2.0
#include "sm90/tensor_map.h"

#include <algorithm>
#include <string>

#include "octavo/error.h"
#include "sm90/driver.h"

namespace octavo::sm90 {
namespace {

decltype(&cuTensorMapEncodeTiled) encoder() {
  static const auto function = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
      driver_function("cuTensorMapEncodeTiled", 12000));
  return function;
}

}  // namespace

CUtensorMap make_tensor_map(const CodesView& x, int box_columns, int box_rows) {
  CUtensorMap map{};
  const auto extent = [](std::int64_t n) {
    return static_cast<cuuint64_t>(std::max<std::int64_t>(n, 1));
  };
  const cuuint64_t shape[] = {extent(x.columns), extent(x.rows), extent(x.heads),
                              extent(x.batches)};
  // Of an extent of 1 the stride does not matter, but the encoder wants one.
  const auto pitch = [](std::int64_t stride, std::int64_t of) {
    return static_cast<cuuint64_t>(of <= 1 ? 16 : stride);
  };
  const cuuint64_t strides[] = {pitch(x.row_stride, x.rows), pitch(x.head_stride, x.heads),
                                pitch(x.batch_stride, x.batches)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows),
                            1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  // A tensor of no elements may have no address; nothing is read of it.
  void* data = x.data != nullptr ? const_cast<void*>(x.data) : reinterpret_cast<void*>(256);
  const CUresult result =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, data, shape, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::cuda,
                "cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(result)));
  }
  return map;
}

}  // namespace octavo::sm90
