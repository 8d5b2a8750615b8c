// SPDX-License-Identifier: Apache-2.0
// Device memory and timing by events, for the benchmarks that need a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "octavo/error.h"

namespace octavo::cli {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error(ErrorCode::cuda, std::string(what) + ": " + cudaGetErrorString(error));
}

struct FreeMemory {
  void operator()(void* p) const { cudaFree(p); }
};
using Memory = std::unique_ptr<void, FreeMemory>;

inline Memory allocate(std::int64_t bytes) {
  void* p = nullptr;
  check(cudaMalloc(&p, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))), "allocating");
  return Memory(p);
}

/// Median time of `launch` in microseconds, by events on `stream`, after three runs to warm up.
template <typename Launch>
double median_us(cudaStream_t stream, int reps, Launch launch) {
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  std::vector<double> us;
  for (int i = 0; i < reps + 3; ++i) {
    check(cudaEventRecord(start, stream), "event");
    launch();
    check(cudaEventRecord(stop, stream), "event");
    check(cudaEventSynchronize(stop), "timing");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "timing");
    if (i >= 3) us.push_back(1e3 * static_cast<double>(ms));
  }
  check(cudaEventDestroy(start), "event");
  check(cudaEventDestroy(stop), "event");
  std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());
  return us[us.size() / 2];
}

}  // namespace octavo::cli
