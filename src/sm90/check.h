// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "octavo/error.h"

namespace octavo::sm90 {

/// Turns a CUDA error into the library's exception, naming what was being done.
inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error(ErrorCode::cuda, std::string(what) + ": " + cudaGetErrorName(error) + ", " +
                                   cudaGetErrorString(error));
}

}  // namespace octavo::sm90
