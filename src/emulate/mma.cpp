// SPDX-License-Identifier: Apache-2.0
#include "emulate/mma.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace octavo::emulate {
namespace {

/// A contiguous copy with everything that is not finite replaced by 0.
std::vector<float> finite_copy(const float* x, std::int64_t stride, std::int64_t rows,
                               std::int64_t cols) {
  std::vector<float> copy(static_cast<std::size_t>(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const float value = x[r * stride + c];
      copy[static_cast<std::size_t>(r * cols + c)] = std::isfinite(value) ? value : 0.0f;
    }
  }
  return copy;
}

/// Finite elements by the model on cleaned operands, the others from an FP32 product.
void mma_hopper_with_nan(const simd::Matrix& a, const simd::Matrix& b, float* c, std::int64_t ldc,
                         std::int64_t rows, std::int64_t cols, std::int64_t depth) {
  std::vector<float> ieee(static_cast<std::size_t>(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy(c + r * ldc, c + r * ldc + cols, ieee.data() + r * cols);
  }
  simd::stages().mma_fp32(a, b, ieee.data(), cols, rows, cols, depth);

  const std::vector<float> clean_a = finite_copy(a.value, a.stride, rows, depth);
  const std::vector<float> power_a = finite_copy(a.power, a.stride, rows, depth);
  const std::vector<float> clean_b = finite_copy(b.value, b.stride, depth, cols);
  const std::vector<float> power_b = finite_copy(b.power, b.stride, depth, cols);
  std::vector<float> clean_c = finite_copy(c, ldc, rows, cols);
  simd::stages().mma_hopper({clean_a.data(), power_a.data(), depth},
                            {clean_b.data(), power_b.data(), cols}, clean_c.data(), cols, rows,
                            cols, depth);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const auto at = static_cast<std::size_t>(i);
    c[(i / cols) * ldc + i % cols] = std::isfinite(ieee[at]) ? clean_c[at] : ieee[at];
  }
}

}  // namespace

void mma(Accumulator model, const simd::Matrix& a, const simd::Matrix& b, float* c,
         std::int64_t ldc, std::int64_t rows, std::int64_t cols, std::int64_t depth, bool finite) {
  if (model == Accumulator::fp32) {
    simd::stages().mma_fp32(a, b, c, ldc, rows, cols, depth);
  } else if (finite) {
    simd::stages().mma_hopper(a, b, c, ldc, rows, cols, depth);
  } else {
    mma_hopper_with_nan(a, b, c, ldc, rows, cols, depth);
  }
}

}  // namespace octavo::emulate
