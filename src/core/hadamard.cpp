// SPDX-License-Identifier: Apache-2.0
#include "core/hadamard.h"

namespace octavo {

namespace {

/// One stage on a block of n channels.
void butterflies(float* y, int n, int distance) {
  for (int i = 0; i < n; i += 2 * distance) {
    for (int j = i; j < i + distance; ++j) {
      const float a = y[j], b = y[j + distance];
      y[j] = a + b;
      y[j + distance] = a - b;
    }
  }
}

}  // namespace

void apply_signs(float* x, int padded_d, const SignBits& signs) {
  for (int c = 0; c < padded_d; ++c) x[c] = signs.negative(c) ? -x[c] : x[c];
}

void hadamard_row(float* x, int padded_d) {
  const int n = hadamard_size(padded_d);
  for (int block = 0; block < padded_d; block += n) {
    for (int distance = 8; distance < n; distance *= 2) butterflies(x + block, n, distance);
    for (int distance = 1; distance < 8; distance *= 2) butterflies(x + block, n, distance);
  }
}

}  // namespace octavo
