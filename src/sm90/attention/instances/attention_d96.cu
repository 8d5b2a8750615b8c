// SPDX-License-Identifier: Apache-2.0
#include "sm90/attention/instantiate.cuh"

namespace octavo::sm90 {

template AttentionKernels attention_kernels<96, 96>();

}  // namespace octavo::sm90
