// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "octavo/tensor.h"
#include "sm90/quantize/args.h"

namespace octavo::sm90 {

/// The kernels of one padded head dim and element size.
struct QuantizeKernels {
  int threads;
  const void* quantize;
  const void* amax;
  const void* key_mean;
  int mean_cluster;  // thread blocks a head of key_mean
  const void* repack;
  std::size_t shared_bytes;  // dynamic, of quantize and amax; all three add the embedding's
  std::size_t (*rope_shared_bytes)(const RopeArgs&);
};

/// Kernels for a padded head dim of tile_table.h and inputs of 2 or 4 bytes an element.
template <int kD>
QuantizeKernels quantize_kernels(std::size_t element_bytes, bool rope);

extern template QuantizeKernels quantize_kernels<64>(std::size_t, bool);
extern template QuantizeKernels quantize_kernels<96>(std::size_t, bool);
extern template QuantizeKernels quantize_kernels<128>(std::size_t, bool);
extern template QuantizeKernels quantize_kernels<192>(std::size_t, bool);
extern template QuantizeKernels quantize_kernels<256>(std::size_t, bool);

}  // namespace octavo::sm90
