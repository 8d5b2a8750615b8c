// SPDX-License-Identifier: Apache-2.0
// Sums of 16 channels are what mma.m16n8k16 makes of them on a Hopper GPU, products with +-1: every
// term is cut to a multiple of 2^(e - 25), 2^e being the power of two of the largest, and the exact
// sum of what is left is cut to FP32's 24 bits. So 26 bits and a sign hold a term and 31 the sum.
// (Khattak, Mikaitis 2025, "Accurate models of NVIDIA tensor cores"; tests/gpu/mma_gpu_test.cu.)
#include "core/hadamard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "core/half.h"

namespace octavo {

namespace {

constexpr int kRows = 8;       // of a block: its three highest channel bits
constexpr int kMostRun = 32;   // neighbouring channels of each row
constexpr int kTermBits = 25;  // behind the largest term's first one
constexpr std::int32_t kMagnitude = 0x7fffffff, kInfinityBits = 0x7f800000,
                       kLeastNormal = 0x00800000;

/// 2^e for e from -126 to 127.
float power_of_two(int e) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
}

/// (a, b) <- (a + b, a - b) between rows `distance` apart of `run` values each.
template <typename T>
void add_rows(T (*x)[kMostRun], int run) {
  for (int distance = 1; distance < kRows; distance *= 2) {
    for (int r = 0; r < kRows; ++r) {
      if ((r & distance) != 0) continue;
      for (int c = 0; c < run; ++c) {
        const T a = x[r][c], b = x[r + distance][c];
        x[r][c] = a + b;
        x[r + distance][c] = a - b;
      }
    }
  }
}

/// The same at `distance` within a row.
template <typename T>
void add_columns(T* x, int run, int distance) {
  for (int c = 0; c < run; ++c) {
    if ((c & distance) != 0) continue;
    const T a = x[c], b = x[c + distance];
    x[c] = a + b;
    x[c + distance] = a - b;
  }
}

/// An integer of up to 30 bits, cut to 24 significant ones.
float cut(std::int32_t sum) {
  const auto near = static_cast<float>(sum);
  const std::int32_t beyond = std::abs(static_cast<std::int32_t>(near)) > std::abs(sum) ? 1 : 0;
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(near) - beyond);
}

/// IEEE sums, for terms that are not all finite.
void sums_with_infinities(float* block, int run, int pair) {
  double x[kRows][kMostRun] = {};
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < 2; ++c) x[r][c] = block[r * run + pair + c];
  }
  add_rows(x, 2);
  for (int r = 0; r < kRows; ++r) {
    add_columns(x[r], 2, 1);
    for (int c = 0; c < 2; ++c) block[r * run + pair + c] = static_cast<float>(x[r][c]);
  }
}

/// Step 2 of one block of 8 run channels.
void sums_of_16(float* block, int run) {
  std::int32_t largest[kMostRun] = {};  // bits of magnitudes
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < run; ++c) {
      largest[c] =
          std::max(largest[c], std::bit_cast<std::int32_t>(block[r * run + c]) & kMagnitude);
    }
  }
  // 2^(25 - e) and back, each in two factors, since one may be none of FP32's.
  float up[kMostRun], up_rest[kMostRun], down[kMostRun], down_rest[kMostRun];
  bool finite[kMostRun];
  for (int c = 0; c < run; ++c) {
    const std::int32_t most = std::max({largest[c], largest[c ^ 1], kLeastNormal});
    const int shift = kTermBits - ((most >> 23) - 127), half = shift >> 1;
    finite[c] = most < kInfinityBits;
    up[c] = power_of_two(half), up_rest[c] = power_of_two(shift - half);
    down[c] = power_of_two(-half), down_rest[c] = power_of_two(half - shift);
  }
  std::int32_t terms[kRows][kMostRun];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < run; ++c) {
      const float x = finite[c] ? block[r * run + c] : 0.0f;
      terms[r][c] = static_cast<std::int32_t>(x * up[c] * up_rest[c]);
    }
  }
  add_rows(terms, run);
  for (int r = 0; r < kRows; ++r) add_columns(terms[r], run, 1);
  for (int c = 0; c < run; c += 2) {
    if (!finite[c]) sums_with_infinities(block, run, c);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < run; ++c) {
      float& x = block[r * run + c];
      x = finite[c] ? cut(terms[r][c]) * down[c] * down_rest[c] : x;
    }
  }
}

float rounded(float x, DType type) {
  return type == DType::f16 ? f16_to_float(float_to_f16(x)) : bf16_to_float(float_to_bf16(x));
}

/// Steps 1, but for the signs, and 2 of one block of 8 run channels.
void rounded_sums(float* block, int run, DType type) {
  const int count = kRows * run, parts = type == DType::f32 ? 2 : 1;
  float rest[kRows * kMostRun], part[kRows * kMostRun];
  std::copy(block, block + count, rest);
  for (int i = 0; i < parts; ++i) {
    for (int c = 0; c < count; ++c) {
      part[c] = rounded(rest[c], type);
      rest[c] = std::isfinite(part[c]) ? rest[c] - part[c] : 0.0f;
    }
    sums_of_16(part, run);
    for (int c = 0; c < count; ++c) block[c] = i == 0 ? part[c] : block[c] + part[c];
  }
}

}  // namespace

void rotate_row(float* x, int padded_d, const SignBits& signs, DType type) {
  for (int c = 0; c < padded_d; ++c) x[c] = signs.negative(c) ? -x[c] : x[c];
  const int n = hadamard_size(padded_d), run = n / kRows;
  for (int block = 0; block < padded_d; block += n) {
    rounded_sums(x + block, run, type);
    for (int distance = 2; distance < run; distance *= 2) {
      for (int r = 0; r < kRows; ++r) add_columns(x + block + r * run, run, distance);
    }
  }
}

}  // namespace octavo
