// SPDX-License-Identifier: Apache-2.0
// Functions of the CUDA driver, found at run time: the library does not link against the driver.
#pragma once

#include <string>

#include "sm90/check.h"

namespace octavo::sm90 {

/// The function of that name as CUDA `version` defines it (12000: 12.0).
inline void* driver_function(const char* name, unsigned version) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found), name);
  if (found != cudaDriverEntryPointSuccess) {
    throw Error(ErrorCode::cuda,
                std::string("the driver has no ") + name + "; must be 525 or newer");
  }
  return entry;
}

}  // namespace octavo::sm90
