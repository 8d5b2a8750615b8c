// SPDX-License-Identifier: Apache-2.0
#include "sm_clock.h"

#include <cuda/ptx>

namespace octavo::cli {
namespace {

/// So many threads in a block that a multiprocessor takes two at a time, and enough blocks for each
/// multiprocessor to take some.
constexpr int kThreads = 1024, kBlocks = 4 * kMostMultiprocessors;

__global__ void read_clocks_kernel(ClockReading* readings) {
  if (threadIdx.x != 0) return;
  const auto at = cuda::ptx::get_sreg_smid();
  if (at >= kMostMultiprocessors) return;
  readings[at] = {static_cast<std::int64_t>(cuda::ptx::get_sreg_clock64()),
                  static_cast<std::int64_t>(cuda::ptx::get_sreg_globaltimer())};
}

}  // namespace

cudaError_t read_clocks(ClockReading* readings, cudaStream_t stream) {
  read_clocks_kernel<<<kBlocks, kThreads, 0, stream>>>(readings);
  return cudaGetLastError();
}

double mean_mhz(const std::vector<ClockReading>& from, const std::vector<ClockReading>& to) {
  double sum = 0;
  int count = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].ns == 0 || to[i].ns <= from[i].ns) continue;
    sum += 1e3 * static_cast<double>(to[i].cycles - from[i].cycles) /
           static_cast<double>(to[i].ns - from[i].ns);
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

}  // namespace octavo::cli
