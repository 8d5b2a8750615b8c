// SPDX-License-Identifier: Apache-2.0
// Stage `merge`: the parts of a row whose keys were split, by their LSE:
//
//   M = max LSE_i    w_i = e^(LSE_i - M)    O = sum w_i O_i / sum w_i    LSE = M + log(sum w_i)
//
// A part that has seen no key (LSE_i = -inf) does not count; a NaN reaches the row.
#pragma once

#include <cuda_runtime_api.h>

#include "sm90/attention/args.h"

namespace octavo::sm90 {

struct MergeArgs {
  const float* parts = nullptr;  // O_i [split, b, h, sq, dv]
  const float* lses = nullptr;   // LSE_i [split, b, h, sq]
  int splits = 1, heads = 0, sq = 0, dv = 0;
  std::int64_t rows = 0;  // b h sq

  OutputTensor out;
  RowValues lse;  // of the whole; data may be null
};

/// A warp a row.
cudaError_t launch_merge(const MergeArgs& args, cudaStream_t stream);

}  // namespace octavo::sm90
