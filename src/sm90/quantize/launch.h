// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "octavo/tensor.h"
#include "sm90/quantize/args.h"

namespace octavo::sm90 {

/// The kernels of one padded head dim and element size.
struct QuantizeKernels {
  int threads;               // of quantize, amax and repack
  int resident;              // of their thread blocks, a multiprocessor
  std::size_t shared_bytes;  // dynamic, of quantize and amax
  int mean_threads;
  const void* quantize;
  const void* amax;
  const void* key_mean;
  const void* repack;
};

/// Kernels for a padded head dim of tile_table.h and inputs of 2 or 4 bytes an element.
template <int kD>
QuantizeKernels quantize_kernels(std::size_t element_bytes, const RopeArgs& rope);

extern template QuantizeKernels quantize_kernels<64>(std::size_t, const RopeArgs&);
extern template QuantizeKernels quantize_kernels<96>(std::size_t, const RopeArgs&);
extern template QuantizeKernels quantize_kernels<128>(std::size_t, const RopeArgs&);
extern template QuantizeKernels quantize_kernels<192>(std::size_t, const RopeArgs&);
extern template QuantizeKernels quantize_kernels<256>(std::size_t, const RopeArgs&);

}  // namespace octavo::sm90
