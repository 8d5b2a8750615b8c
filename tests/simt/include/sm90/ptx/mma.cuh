// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device.h"
#include "octavo/tensor.h"

namespace octavo::sm90::ptx {

template <DType kType>
void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  static_assert(kType == DType::bf16 || kType == DType::f16);
  const auto meeting =
      kType == DType::f16 ? simt::Meeting::product_f16 : simt::Meeting::product_bf16;
  const auto result = simt::meet(meeting, 0, {a[0], a[1], a[2], a[3], b0, b1});
  for (std::size_t i = 0; i < 4; ++i) d[i] = __uint_as_float(result[i]);
}

}  // namespace octavo::sm90::ptx
