// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dispatch.h"

namespace octavo::emulate {

/// The CPU model of the GPU kernels: the data path of docs/data_path.md stage by stage.
extern const Engine kEngine;

/// quantize() of octavo/quantize.h on a validated problem.
QuantizedQkv quantise_all(const AttentionProblem& problem);

}  // namespace octavo::emulate
