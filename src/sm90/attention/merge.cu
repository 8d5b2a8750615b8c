// SPDX-License-Identifier: Apache-2.0
#include "sm90/attention/merge.h"

#include <cmath>

#include "sm90/attention/store.cuh"

namespace octavo::sm90 {
namespace {

constexpr int kWarps = 8;    // a thread block
constexpr int kColumns = 8;  // a lane, of 256

__global__ void __launch_bounds__(32 * kWarps)
    merge_kernel(const __grid_constant__ MergeArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (row >= args.rows) return;
  float most = -INFINITY;
  for (int i = 0; i < args.splits; ++i) most = fmaxf(most, args.lses[i * args.rows + row]);
  float sum = 0, o[kColumns] = {};
  for (int i = 0; i < args.splits; ++i) {
    const float lse = args.lses[i * args.rows + row];
    if (lse == -INFINITY) continue;
    const float weight = expf(lse - most);
    const float* part = args.parts + (i * args.rows + row) * args.dv;
    sum += weight;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = lane + 32 * c;
      if (column < args.dv) o[c] = __fmaf_rn(weight, part[column], o[c]);
    }
  }
  const int s = static_cast<int>(row % args.sq);
  const int h = static_cast<int>(row / args.sq % args.heads);
  const auto b = static_cast<int>(row / args.sq / args.heads);
  const std::int64_t to = args.out.offset(b, h, s);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int column = lane + 32 * c;
    if (column >= args.dv) continue;
    store_element(args.out.data, args.out.dtype, to + column, sum == 0 ? 0.0f : o[c] / sum);
  }
  if (args.lse.data != nullptr && lane == 0) {
    *args.lse.at(b, h, s) = sum == 0 ? -INFINITY : most + logf(sum);
  }
}

}  // namespace

cudaError_t launch_merge(const MergeArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((args.rows + kWarps - 1) / kWarps);
  merge_kernel<<<blocks, 32 * kWarps, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace octavo::sm90
