// SPDX-License-Identifier: Apache-2.0
#include "sm90/quantize/instantiate.cuh"

namespace octavo::sm90 {

template QuantizeKernels quantize_kernels<256>(std::size_t, const RopeArgs&);

}  // namespace octavo::sm90
