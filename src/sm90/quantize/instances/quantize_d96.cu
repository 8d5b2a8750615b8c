// SPDX-License-Identifier: Apache-2.0
#include "sm90/quantize/instantiate.cuh"

template octavo::sm90::QuantizeKernels octavo::sm90::quantize_kernels<96>(std::size_t, bool);
