// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/problem.h"
#include "octavo/cuda.h"

namespace octavo::sm90 {

/// Why the GPU quantiser cannot take the 16- and 32-bit operands of a call; empty where it can.
std::string why_not_quantised(const AttentionProblem& problem);

/// What a caller will need of K smoothing beside the codes.
enum class ScoreShift { wanted, unused };

/// octavo::quantize_on_device; where the score shift is unused, that of the result is null.
DeviceQkv quantize_on_device(const QuantizeParams& params, void* workspace, std::size_t bytes,
                             CudaStream stream, const std::int32_t* device_key_lengths,
                             ScoreShift shift);

}  // namespace octavo::sm90
