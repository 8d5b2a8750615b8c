// SPDX-License-Identifier: Apache-2.0
// What a file of instances/ includes before it names its head dim.
#pragma once

#include "sm90/quantize/key_mean_kernel.cuh"
#include "sm90/quantize/launch.h"
#include "sm90/quantize/quantize_kernel.cuh"
#include "sm90/quantize/repack_kernel.cuh"

namespace octavo::sm90 {

template <int kD, int kBytes, typename Embedding, typename MeanEmbedding>
QuantizeKernels kernels_of(const RopeArgs& rope) {
  using Shape = TileShape<kD>;
  return {Shape::kThreads,
          min_blocks<kD, kBytes>(),
          Shared<kD, kBytes>::bytes(Embedding::template shared_bytes<kD>(rope)),
          MeanShape<kD>::kThreads,
          reinterpret_cast<const void*>(&quantize_kernel<kD, kBytes, Embedding>),
          reinterpret_cast<const void*>(&amax_kernel<kD, kBytes, Embedding>),
          reinterpret_cast<const void*>(&key_mean_kernel<kD, kBytes, MeanEmbedding>),
          reinterpret_cast<const void*>(&repack_kernel<kD>)};
}

template <int kD, int kBytes>
QuantizeKernels kernels_of(const RopeArgs& rope) {
  return rope.cos == nullptr ? kernels_of<kD, kBytes, NoRope, MeanNoRope>(rope)
                             : kernels_of<kD, kBytes, WithRope, MeanWithRope>(rope);
}

template <int kD>
QuantizeKernels quantize_kernels(std::size_t element_bytes, const RopeArgs& rope) {
  return element_bytes == 2 ? kernels_of<kD, 2>(rope) : kernels_of<kD, 4>(rope);
}

}  // namespace octavo::sm90
