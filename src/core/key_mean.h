// SPDX-License-Identifier: Apache-2.0
// Which keys K's mean is taken of and in which order they are summed, the same in every engine.
//
// Any vector subtracted from all keys leaves softmax as it is, so the mean need only be near: it is
// that of 32 runs of 4 keys at even distances, and of all keys where there are at most 128. The
// same vector is subtracted from every key, and K is not read a second time.
//
// Each run is summed by 4 lanes: lane i has key i, and lanes are added pairwise at distances 2, 1.
// The runs' sums are added by the same lanes (lane i has runs i, i + 4, .. in this order) and tree,
// and divided by the number of keys in all runs. All in FP32. Where K is rotated, so is its mean,
// as a row in FP32.
#pragma once

#include <cstdint>

#include "core/quant_block.h"

namespace octavo {

inline constexpr std::int64_t kMeanLanes = 4;
inline constexpr std::int64_t kMeanRuns = 32;
inline constexpr std::int64_t kMeanRunKeys = 4;

/// Keys from the start of a run to that of the next one: at most kMeanRuns of them.
constexpr std::int64_t mean_run_distance(std::int64_t keys) {
  const std::int64_t units = ceil_div(keys, kMeanRunKeys);
  return (units > kMeanRuns ? ceil_div(units, kMeanRuns) : 1) * kMeanRunKeys;
}

/// Where the run that starts at key `begin` ends.
constexpr std::int64_t mean_run_end(std::int64_t begin, std::int64_t keys) {
  return begin + kMeanRunKeys < keys ? begin + kMeanRunKeys : keys;
}

/// Keys in all runs.
constexpr std::int64_t mean_keys(std::int64_t keys) {
  if (keys == 0) return 0;
  const std::int64_t distance = mean_run_distance(keys), whole = (keys - 1) / distance;
  return whole * kMeanRunKeys + mean_run_end(whole * distance, keys) - whole * distance;
}

/// q . mean is summed in eight parts, each by fused multiply-adds in order of channels, and those
/// as
/// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Part i has the i-th eighth of each Hadamard block:
/// what one of the eight threads of a rotated row holds.
inline constexpr int kDotParts = 8;

}  // namespace octavo
