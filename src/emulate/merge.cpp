// SPDX-License-Identifier: Apache-2.0
#include "emulate/merge.h"

#include <algorithm>
#include <cmath>

namespace octavo::emulate {
namespace {

/// exp(lse - top) in double, rounded once: no library's last bit shows.
float weight_of(float lse, float top) {
  return static_cast<float>(std::exp(static_cast<double>(lse) - static_cast<double>(top)));
}

/// The largest LSE of row i; -inf where there is none. NaN is passed over: its own weight carries
/// it.
float largest_lse(const SplitResults& results, std::int64_t i) {
  float top = kMinusInfinity;
  for (std::size_t at = static_cast<std::size_t>(i); at < results.lse.size(); at += kBlockM) {
    top = std::fmax(top, results.lse[at]);
  }
  return top;
}

/// Row i: the weighted mean of its splits, in place of the tile's O and LSE.
void merge_row(Tile& tile, const SplitResults& results, std::int64_t i) {
  const std::int64_t dv = tile.v.cols;
  const float top = largest_lse(results, i);
  float* out = tile.out + i * dv;
  float sum = 0;
  std::fill(out, out + dv, 0.0f);
  for (std::size_t at = static_cast<std::size_t>(i); at < results.lse.size(); at += kBlockM) {
    if (results.lse[at] == kMinusInfinity) continue;
    const float weight = weight_of(results.lse[at], top);
    const float* part = results.out.data() + static_cast<std::int64_t>(at) * dv;
    sum += weight;
    for (std::int64_t c = 0; c < dv; ++c) out[c] += weight * part[c];
  }
  tile.lse[i] = kMinusInfinity;
  if (sum == 0) return;
  for (std::int64_t c = 0; c < dv; ++c) out[c] /= sum;
  tile.lse[i] = top + static_cast<float>(std::log(static_cast<double>(sum)));
}

}  // namespace

void allocate(SplitResults& results, std::int64_t splits, std::int64_t dv) {
  results.out.resize(static_cast<std::size_t>(splits * kBlockM * dv));
  results.lse.resize(static_cast<std::size_t>(splits * kBlockM));
}

void keep(SplitResults& results, std::int64_t split, Tile& tile) {
  const std::int64_t dv = tile.v.cols, first = split * kBlockM;
  std::copy(tile.out.data(), tile.out + tile.rows * dv, results.out.data() + first * dv);
  std::copy(tile.lse, tile.lse + tile.rows, results.lse.data() + first);
}

void merge(Tile& tile, const SplitResults& results) {
  for (std::int64_t i = 0; i < tile.rows; ++i) merge_row(tile, results, i);
}

}  // namespace octavo::emulate
