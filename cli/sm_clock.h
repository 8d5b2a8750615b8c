// SPDX-License-Identifier: Apache-2.0
// The multiprocessors' clock between two points of a stream. Under load the board lowers it within
// a millisecond, also where the driver's figure stays as it is: a rate without it says little.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

namespace octavo::cli {

/// What a multiprocessor's counters read; ns 0: it has not been asked.
struct alignas(16) ClockReading {
  std::int64_t cycles, ns;
};

/// Multiprocessors that a board may have.
inline constexpr int kMostMultiprocessors = 256;

/// Has every multiprocessor write its counters to `readings` [kMostMultiprocessors], in device
/// memory.
cudaError_t read_clocks(ClockReading* readings, cudaStream_t stream);

/// Mean clock in MHz between two such readings, in host memory; 0: no multiprocessor is in both.
double mean_mhz(const std::vector<ClockReading>& from, const std::vector<ClockReading>& to);

}  // namespace octavo::cli
