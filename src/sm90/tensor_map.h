// SPDX-License-Identifier: Apache-2.0
// Descriptions of tensors for the copy engine.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace octavo::sm90 {

/// Bytes [batches, heads, rows, columns] in device memory; columns adjacent.
struct CodesView {
  const void* data = nullptr;
  std::int64_t columns = 0, rows = 0, heads = 0, batches = 0;
  std::int64_t row_stride = 0, head_stride = 0, batch_stride = 0;
};

/// Boxes of `box_columns` (at most 128) x `box_rows` codes in the 128-byte swizzle; zeros outside.
CUtensorMap make_tensor_map(const CodesView& x, int box_columns, int box_rows);

}  // namespace octavo::sm90
