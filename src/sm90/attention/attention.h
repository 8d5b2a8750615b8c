// SPDX-License-Identifier: Apache-2.0
// The forward pass on a validated problem whose tensors are in device memory.
#pragma once

#include <cstddef>
#include <string>

#include "core/problem.h"
#include "octavo/cuda.h"

namespace octavo::sm90 {

/// Why the Hopper kernels cannot run this; empty where they can. Does not look at the device.
std::string why_unsupported_on_device(const AttentionProblem& problem);

std::size_t attention_workspace_bytes(const AttentionProblem& problem);

/// octavo/cuda.h, describe_attention_kernel.
std::string describe_kernel(const AttentionProblem& problem);

/// Quantises what is in 16 or 32 bits, then attends. Throws Error.
void attend_on_device(const AttentionProblem& problem, void* workspace, std::size_t bytes,
                      CudaStream stream, const std::int32_t* device_lengths);

/// Attends to operands in the kernels' layout; problem.q, k and v are not read.
void attend_on_device(const AttentionProblem& problem, const DeviceQkv& qkv, void* workspace,
                      std::size_t bytes, CudaStream stream, const std::int32_t* device_lengths);
std::size_t attention_workspace_bytes(const AttentionProblem& problem, const DeviceQkv& qkv);

}  // namespace octavo::sm90
