// SPDX-License-Identifier: Apache-2.0
#include "sm90/attention/instantiate.cuh"

namespace octavo::sm90 {

template AttentionKernels attention_kernels<256, 256>();

}  // namespace octavo::sm90
