// SPDX-License-Identifier: Apache-2.0
// What a warp's matrix product makes of 16 terms, against its definition: the rotation's bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/half.h"
#include "gpu/device_memory.h"
#include "sm90/ptx/mma.cuh"
#include "sm90/quantize/hadamard_operands.h"
#include "support/random.h"
#include "support/tensor_core_sum.h"

namespace octavo::test {
namespace {

/// A warp a group: terms [8][16] of 16 bits to sums [8][16] with the signs of a Hadamard matrix.
template <DType kType>
__global__ void sums_kernel(const std::uint32_t* terms, float* sums) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  terms += blockIdx.x * 64, sums += blockIdx.x * 128;
  const sm90::HadamardSigns<kType> signs(lane);
  float d[4];
  sm90::ptx::mma_16x8x16<kType>(d, signs.a, terms[g * 8 + t], terms[g * 8 + t + 4]);
  for (int i = 0; i < 4; ++i) sums[(2 * t + i % 2) * 16 + g + 8 * (i / 2)] = d[i];
}

/// HadamardSigns' k-th column of row m: bit 0 is the lowest of k and the highest of m.
bool negative(int m, int k) {
  const int column = (k & 1) << 3 | k >> 1;
  return std::popcount(static_cast<unsigned>(m & column)) % 2 != 0;
}

float decoded(DType type, std::uint16_t bits) {
  return type == DType::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}
std::uint16_t encoded(DType type, double x) {
  const auto value = static_cast<float>(x);
  return type == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
}

/// Terms of every size: groups over up to 60 binary orders, at either end of the range, with
/// infinities and NaN.
std::vector<std::uint16_t> terms_of(DType type, int groups) {
  Random random(type == DType::f16 ? 1 : 2);
  std::vector<std::uint16_t> terms(static_cast<std::size_t>(groups) * 128);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::size_t group = i / 128;
    const double spread = static_cast<double>(group % 16) * (type == DType::f16 ? 2 : 4);
    const int top = type == DType::f16 ? 14 : 126, bottom = type == DType::f16 ? -20 : -130;
    const int middle = group % 4 != 0 ? 0 : group % 8 == 0 ? top : bottom;
    double x = random.normal() * std::ldexp(1.0, middle) * std::exp2(-spread * random.uniform());
    if (group % 50 == 49 && random.chance(0.02)) x = random.chance(0.5) ? INFINITY : -INFINITY;
    if (group % 100 == 99 && random.chance(0.01)) x = NAN;
    terms[i] = encoded(type, x);
  }
  return terms;
}

template <DType kType>
void expect_sums() {
  constexpr int kGroups = 20000;
  const std::vector<std::uint16_t> terms = terms_of(kType, kGroups);
  const DeviceBytes in(terms.size() * 2), out(terms.size() * sizeof(float));
  in.upload(terms.data(), terms.size() * 2);
  sums_kernel<kType><<<kGroups, 32>>>(static_cast<const std::uint32_t*>(in.get()),
                                      static_cast<float*>(out.get()));
  sm90::check(cudaGetLastError(), "sums kernel");
  const std::vector<float> sums =
      download(static_cast<const float*>(out.get()), static_cast<std::int64_t>(terms.size()));
  int wrong = 0, rounded = 0;
  for (std::size_t row = 0; row < sums.size() / 16; ++row) {
    for (int m = 0; m < 16; ++m) {
      float signed_terms[16];
      double exact = 0;
      for (int k = 0; k < 16; ++k) {
        const float term = decoded(kType, terms[row * 16 + static_cast<std::size_t>(k)]);
        signed_terms[k] = negative(m, k) ? -term : term;
        exact += signed_terms[k];
      }
      const float want = tensor_core_sum(signed_terms), got = sums[row * 16 + m];
      rounded += static_cast<float>(exact) != want;
      if (std::isnan(want) ? std::isnan(got) : got == want) continue;
      if (++wrong <= 10) {
        ADD_FAILURE() << dtype_name(kType) << " row " << row << ", sum " << m << ": " << got
                      << ", not " << want << " (exact: " << exact << ")";
      }
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(rounded, 1000) << "nothing that only a tensor core would do was seen";
}

TEST(Mma, SmokeSumsAreThoseOfTheDefinition) {
  expect_sums<DType::bf16>();
  expect_sums<DType::f16>();
}

}  // namespace
}  // namespace octavo::test
