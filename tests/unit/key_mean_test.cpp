// SPDX-License-Identifier: Apache-2.0
#include "core/key_mean.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace octavo {
namespace {

/// First keys of all runs.
std::vector<std::int64_t> runs_of(std::int64_t keys) {
  std::vector<std::int64_t> runs;
  for (std::int64_t begin = 0; begin < keys; begin += mean_run_distance(keys)) {
    runs.push_back(begin);
  }
  return runs;
}

class KeyMeanRuns : public testing::TestWithParam<std::int64_t> {};

TEST_P(KeyMeanRuns, AreFewApartAndInsideAndCounted) {
  const std::int64_t keys = GetParam();
  const std::vector<std::int64_t> runs = runs_of(keys);
  EXPECT_LE(static_cast<std::int64_t>(runs.size()), kMeanRuns);
  EXPECT_GE(mean_run_distance(keys), kMeanRunKeys) << "runs must not share keys";
  std::int64_t counted = 0;
  for (const std::int64_t begin : runs) {
    const std::int64_t end = mean_run_end(begin, keys);
    EXPECT_GT(end, begin);
    EXPECT_LE(end, keys);
    EXPECT_LE(end - begin, kMeanRunKeys);
    counted += end - begin;
  }
  EXPECT_EQ(counted, mean_keys(keys));
}

TEST_P(KeyMeanRuns, CoverAllOfAShortSequenceAndSpanALongOne) {
  const std::int64_t keys = GetParam(), most = kMeanRuns * kMeanRunKeys;
  if (keys <= most) {
    EXPECT_EQ(mean_keys(keys), keys);
    return;
  }
  EXPECT_GE(mean_keys(keys), most / 2);
  EXPECT_GE(runs_of(keys).back(), keys - 2 * mean_run_distance(keys)) << "the end must be sampled";
}

INSTANTIATE_TEST_SUITE_P(Lengths, KeyMeanRuns,
                         testing::Values(0, 1, 3, 4, 5, 127, 128, 129, 132, 133, 511, 513, 799,
                                         1023, 1024, 1025, 4224, 16384, 131072, 1000003));

}  // namespace
}  // namespace octavo
