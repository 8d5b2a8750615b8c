// SPDX-License-Identifier: Apache-2.0
// Constants of the softmax in base 2, shared by all engines that quantise P.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace octavo {

/// P is carried as 2^(t - m + 8): its largest value, 256, is far enough below 448 that rounding
/// cannot saturate, and the smallest E4M3 value stands for 2^-17 of the row's largest weight.
inline constexpr float kPExponentShift = 8.0f;

/// Where P is rounded to 16 bits, whose error does not depend on its size, m stays what it is until
/// a score exceeds it by this: p is at most 2^15, within FP16, and O seldom needs to be rescaled.
inline constexpr float kMaximumSlack = 7.0f;

/// Centres the mantissa error of the direct path: an E4M3 pattern read as a number is a piecewise
/// linear log2, too large by up to 0.086 between powers of two. With this shift the codes' values
/// average to p over a uniform fraction (numerical search, docs/numerics.md).
inline constexpr float kDirectShift = -0.457f;

/// The direct path: code = round(8 (log2 p + 7) + kDirectShift), with p = 2^(t - m + 8).
inline constexpr float kDirectTop = 8.0f * (kPExponentShift + 7.0f) + kDirectShift;

/// A scale factor of scores is kept inside FP32's normal range, so that -inf times it stays -inf
/// and 0 times it stays 0, whatever the descales. NaN stays NaN.
inline constexpr float kLeastFactor = 0x1p-126f, kMostFactor = 0x1.fffffep127f;
inline float clamp_factor(float c, float most = kMostFactor) {
  return c < kLeastFactor ? kLeastFactor : c > most ? most : c;
}

inline constexpr double kLog2E = std::numbers::log2e;
inline constexpr double kLn2 = std::numbers::ln2;

/// The power of two that brings `largest` into [128, 256); 1 for 0. Of a row of P into which
/// descales of V per key have been folded.
constexpr float fold_scale(float largest) {
  if (!(largest > 0)) return 1.0f;
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23) - 127;
  const int e = std::clamp(7 - exponent, -120, 120);
  return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
}

/// How scores become numbers of base 2: constants of a call.
struct ScoreScale {
  float sm_scale_log2 = 0;  // sm_scale log2 e
  float softcap_scale = 0;  // sm_scale / softcap; 0 without softcap
  float softcap_log2 = 0;   // softcap log2 e
};

inline ScoreScale score_scale(double sm_scale, float softcap) {
  ScoreScale scale;
  scale.sm_scale_log2 = static_cast<float>(sm_scale * kLog2E);
  if (softcap > 0) {
    const double cap = static_cast<double>(softcap);
    scale.softcap_scale = static_cast<float>(sm_scale / cap);
    scale.softcap_log2 = static_cast<float>(cap * kLog2E);
  }
  return scale;
}

}  // namespace octavo
