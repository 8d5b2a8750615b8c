// SPDX-License-Identifier: Apache-2.0
// Stage `smooth`: K <- K - mean(K over its keys), per (batch, kv head). It comes after the
// rotation, of which the mean gets its own.
//
//   mean[c] = sum over keys of K[key][c] / keys         shift[i] = q_i . mean
//
// Softmax does not see a constant taken from a row of scores; the LSE and a softcap do, and get
// shift back. Elements that are not finite count as 0 in the sum: one NaN must not reach every key.
//
// Bits: core/key_mean.h fixes the order of additions.
#pragma once

#include <vector>

#include "emulate/rope.h"

namespace octavo::emulate {

/// Mean over the first `rows` keys of (b, h): k.padded_d() channels.
std::vector<float> key_mean(const RowSource& k, std::int64_t b, std::int64_t h, std::int64_t rows);

/// x . mean over padded_d channels.
float dot_mean(const float* x, const float* mean, int padded_d);

}  // namespace octavo::emulate
