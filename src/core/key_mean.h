// SPDX-License-Identifier: Apache-2.0
// The order in which K's mean is summed, the same in every engine.
//
// Keys are cut into at most 32 chunks. Each is summed by 16 lanes: lane i adds keys i, i + 16, ..
// of the chunk in order, then lanes are added pairwise at distances 8, 4, 2, 1. The chunks' sums
// are added by the same 16 lanes and tree, and divided by the number of keys. All in FP32. Where K
// is rotated, so is its mean.
#pragma once

#include <cstdint>

#include "core/quant_block.h"

namespace octavo {

inline constexpr std::int64_t kMeanLanes = 16;
inline constexpr std::int64_t kMeanChunks = 32;  // few enough that every reader can add them up

inline constexpr std::int64_t kMeanChunkUnit = 64;

/// Keys a chunk holds: a multiple of 64, at most kMeanChunks chunks.
constexpr std::int64_t mean_chunk_rows(std::int64_t keys) {
  const std::int64_t units = ceil_div(keys, kMeanChunkUnit);
  return (units > kMeanChunks ? ceil_div(units, kMeanChunks) : 1) * kMeanChunkUnit;
}

/// q . mean is summed in four parts, each by fused multiply-adds in order of channels, and those as
/// (0 + 1) + (2 + 3). Part i has runs i, i + 4, .. of this many channels: what one of the four
/// threads of a row holds.
constexpr int dot_run(int padded_d) { return (padded_d & (padded_d - 1)) == 0 ? 16 : 8; }

}  // namespace octavo
