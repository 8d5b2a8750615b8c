// SPDX-License-Identifier: Apache-2.0
// What a file of instances/ includes before it names its head dim.
#pragma once

#include "sm90/quantize/key_mean_kernel.cuh"
#include "sm90/quantize/launch.h"
#include "sm90/quantize/quantize_kernel.cuh"
#include "sm90/quantize/repack_kernel.cuh"

namespace octavo::sm90 {

template <int kD, int kBytes, typename Embedding>
QuantizeKernels kernels_of() {
  return {TileShape<kD>::kThreads,
          reinterpret_cast<const void*>(&quantize_kernel<kD, kBytes, Embedding>),
          reinterpret_cast<const void*>(&amax_kernel<kD, kBytes, Embedding>),
          reinterpret_cast<const void*>(&key_mean_kernel<kD, kBytes, Embedding>),
          kMeanCluster,
          reinterpret_cast<const void*>(&repack_kernel<kD>),
          sizeof(Shared<kD, kBytes>),
          &Embedding::shared_bytes};
}

template <int kD, int kBytes>
QuantizeKernels kernels_of(bool rope) {
  // Beyond 128 channels the angles find no room beside the tiles: check_rope refuses such calls.
  if constexpr (kD <= kMaxRopeDim) {
    if (rope) return kernels_of<kD, kBytes, WithRope>();
  }
  return kernels_of<kD, kBytes, NoRope>();
}

template <int kD>
QuantizeKernels quantize_kernels(std::size_t element_bytes, bool rope) {
  return element_bytes == 2 ? kernels_of<kD, 2>(rope) : kernels_of<kD, 4>(rope);
}

}  // namespace octavo::sm90
