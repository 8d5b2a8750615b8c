// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "octavo/quantize.h"

namespace octavo::sm90 {

/// quantize() of host tensors on the GPU: copies them there, quantises, and brings row-major codes
/// back. For files and checks; synchronises and allocates. Throws Error{unsupported} without a
/// device.
QuantizedQkv quantize_host_tensors(const QuantizeParams& params);

}  // namespace octavo::sm90
