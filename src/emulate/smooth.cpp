// SPDX-License-Identifier: Apache-2.0
#include "emulate/smooth.h"

#include <algorithm>
#include <cmath>

#include "core/hadamard.h"
#include "core/key_mean.h"
#include "core/quant_block.h"

namespace octavo::emulate {
namespace {

/// Sum over items [begin, end) of the rows that `load` returns, in lanes and a tree.
template <typename Load>
std::vector<float> lane_sum(std::int64_t begin, std::int64_t end, std::size_t d, Load load) {
  std::vector<float> lane(static_cast<std::size_t>(kMeanLanes) * d, 0.0f);
  for (std::int64_t i = begin; i < end; ++i) {
    float* sum = lane.data() + static_cast<std::size_t>((i - begin) % kMeanLanes) * d;
    const float* row = load(i);
    for (std::size_t c = 0; c < d; ++c) sum[c] += row[c];
  }
  for (std::size_t distance = kMeanLanes / 2; distance > 0; distance /= 2) {
    for (std::size_t c = 0; c < distance * d; ++c) lane[c] += lane[distance * d + c];
  }
  lane.resize(d);
  return lane;
}

}  // namespace

std::vector<float> key_mean(const RowSource& k, std::int64_t b, std::int64_t h, std::int64_t rows) {
  const auto d = static_cast<std::size_t>(k.padded_d());
  std::vector<float> row(d, 0.0f), run_sum;
  const auto load_key = [&](std::int64_t key) {
    k.row(b, h, key, row.data());
    for (float& x : row) x = std::isfinite(x) ? x : 0.0f;
    return row.data();
  };
  const std::int64_t distance = mean_run_distance(rows);
  const auto load_run = [&](std::int64_t run) {
    const std::int64_t begin = run * distance;
    run_sum = lane_sum(begin, mean_run_end(begin, rows), d, load_key);
    return run_sum.data();
  };
  std::vector<float> mean = lane_sum(0, ceil_div(rows, distance), d, load_run);
  if (rows > 0) {
    for (float& x : mean) x /= static_cast<float>(mean_keys(rows));
  }
  return mean;
}

float dot_mean(const float* x, const float* mean, int padded_d) {
  const int run = hadamard_size(padded_d) / kDotParts;
  float sum[kDotParts] = {};
  for (int c = 0; c < padded_d; ++c) {
    float& part = sum[c / run % kDotParts];
    part = std::fma(x[c], mean[c], part);
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

}  // namespace octavo::emulate
