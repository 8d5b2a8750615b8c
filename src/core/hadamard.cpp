// SPDX-License-Identifier: Apache-2.0
#include "core/hadamard.h"

namespace octavo {

void rotate_row(float* x, int padded_d, const SignBits& signs) {
  for (int c = 0; c < padded_d; ++c) x[c] = signs.negative(c) ? -x[c] : x[c];
  const int n = hadamard_size(padded_d);
  for (int block = 0; block < padded_d; block += n) {
    float* y = x + block;
    for (int h = 1; h < n; h *= 2) {
      for (int i = 0; i < n; i += 2 * h) {
        for (int j = i; j < i + h; ++j) {
          const float a = y[j], b = y[j + h];
          y[j] = a + b;
          y[j + h] = a - b;
        }
      }
    }
  }
  const float norm = hadamard_norm(n);
  for (int c = 0; c < padded_d; ++c) x[c] *= norm;
}

}  // namespace octavo
