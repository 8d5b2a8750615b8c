// SPDX-License-Identifier: Apache-2.0
// The inner loops of the emulation, compiled once for each SIMD target and chosen at run time.
//
// All targets give the same bits: vectors hold 8 lanes (or two halves of 8), sums keep 8 residues,
// every fused multiply-add is written as one and nothing else is contracted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/tensor.h"

namespace octavo::emulate::simd {

inline constexpr int kLanes = 8;  // residues of every row sum

/// A row-major matrix of codes' values in FP32, with what the Hopper accumulator needs of each
/// value.
struct Matrix {
  const float* value = nullptr;
  const float* power = nullptr;  // the power of two of the value's exponent field; 0 for 0
  std::int64_t stride = 0;
};

struct Stages {
  /// Codes to values and, of FP8, powers; returns whether any value is NaN or infinite.
  bool (*decode)(const std::uint8_t* codes, std::int64_t n, DType format, float* value,
                 float* power);

  /// c[rows][cols] += a[rows][depth] b[depth][cols] in FP32, one fused multiply-add a step, in
  /// order of depth. cols is a multiple of 8.
  void (*mma_fp32)(const Matrix& a, const Matrix& b, float* c, std::int64_t ldc, std::int64_t rows,
                   std::int64_t cols, std::int64_t depth);

  /// The same in the arithmetic of FP8 wgmma (docs/numerics.md). depth is a multiple of 32. Finite
  /// inputs only.
  void (*mma_hopper)(const Matrix& a, const Matrix& b, float* c, std::int64_t ldc,
                     std::int64_t rows, std::int64_t cols, std::int64_t depth);

  /// s[i] <- factor tanh(s[i] scale + bias), n a multiple of 8.
  void (*softcap)(float* s, std::int64_t n, float scale, float bias, float factor);

  /// s[i] *= descale[i], n a multiple of 8.
  void (*scale_columns)(float* s, const float* descale, std::int64_t n);

  /// The largest s[i], NaN passed over; -inf where there is none. n a multiple of 8.
  float (*row_max)(const float* s, std::int64_t n);

  /// p[i] = 2^(s[i] c + offset); sum[i % 8] = sum[i % 8] alpha + p[i] + p[i + 8] + ..
  void (*exp2_sum)(const float* s, std::int64_t n, float c, float offset, float alpha, float* p,
                   float* sum);

  /// codes[i] = E4M3(p[i]), round to nearest even.
  void (*cast_p)(const float* p, std::int64_t n, std::uint8_t* codes);

  /// codes[i] = round(max(s[i] c + offset, 0)), the direct path.
  void (*direct_codes)(const float* s, std::int64_t n, float c, float offset, std::uint8_t* codes);

  /// x[i] *= factor; and out[i] = fma(x[i], a, out[i] * b).
  void (*rescale)(float* x, std::int64_t n, float factor);
  void (*promote)(float* out, const float* x, std::int64_t n, float a, float b);
};

/// The best target of this machine, or the one set by force_target.
const Stages& stages();

/// Names of the targets that run here, best first.
std::vector<std::string> target_names();

/// Tests only: uses the named target from now on; empty goes back to the best. False if it is not
/// among target_names(). Not thread-safe.
bool force_target(const std::string& name);

}  // namespace octavo::emulate::simd
