// SPDX-License-Identifier: Apache-2.0
// Facts of the current device, cheap enough to ask at every call.
#pragma once

#include "sm90/check.h"

namespace octavo::sm90 {

inline int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "reading the current device");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "reading the number of multiprocessors");
  return count;
}

/// Whether there is a current device and it is a Hopper GPU; device_status() says what else it is.
inline bool device_is_hopper() {
  int device = 0, major = 0, minor = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major == 9 && minor == 0;
}

}  // namespace octavo::sm90
