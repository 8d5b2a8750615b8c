// SPDX-License-Identifier: Apache-2.0
// One element of an output, rounded to its type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "octavo/tensor.h"

namespace octavo::sm90 {

__device__ inline void store_element(void* data, DType dtype, std::int64_t at, float value) {
  if (dtype == DType::f32) {
    static_cast<float*>(data)[at] = value;
  } else if (dtype == DType::bf16) {
    static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
  } else {
    static_cast<__half*>(data)[at] = __float2half_rn(value);
  }
}

}  // namespace octavo::sm90
