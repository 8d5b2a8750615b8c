// SPDX-License-Identifier: Apache-2.0
// Every SIMD target gives the bits of every other, over the whole data path and each stage.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/e4m3.h"
#include "core/e5m2.h"
#include "core/hadamard.h"
#include "core/half.h"
#include "emulate/simd/stages.h"
#include "octavo/attention.h"
#include "support/sanitizer.h"

namespace octavo::emulate::simd {
namespace {

/// Puts the best target back whatever happens.
struct TargetGuard {
  ~TargetGuard() { force_target(""); }
};

std::vector<float> normals(std::size_t n, std::uint64_t seed) {
  std::vector<float> x(n);
  for (auto& value : x) {  // sum of four uniforms: close enough to a bell
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(split_mix(seed) >> 11) * 0x1p-53 - 0.5;
    value = static_cast<float>(sum * 1.7);
  }
  return x;
}

struct Result {
  std::vector<float> out, lse;
};

Result attention(const char* recipe, SoftmaxPath path, Accumulator accumulator, float softcap) {
  const std::int64_t b = 1, sq = test::kSanitized ? 40 : 150, sk = 300, hq = 2, hkv = 1, d = 80,
                     dv = 96;
  std::vector<float> q = normals(static_cast<std::size_t>(b * sq * hq * d), 1);
  std::vector<float> k = normals(static_cast<std::size_t>(b * sk * hkv * d), 2);
  std::vector<float> v = normals(static_cast<std::size_t>(b * sk * hkv * dv), 3);
  Result r{std::vector<float>(static_cast<std::size_t>(b * sq * hq * dv), NAN),
           std::vector<float>(static_cast<std::size_t>(b * hq * sq), NAN)};
  AttentionParams params;
  params.q = contiguous(q.data(), DType::f32, {b, sq, hq, d});
  params.k = contiguous(k.data(), DType::f32, {b, sk, hkv, d});
  params.v = contiguous(v.data(), DType::f32, {b, sk, hkv, dv});
  params.out = contiguous(r.out.data(), DType::f32, {b, sq, hq, dv});
  params.lse = contiguous(r.lse.data(), DType::f32, {b, hq, sq});
  params.mask = MaskSpec::causal();
  params.softcap = softcap;
  params.recipe = parse_recipe(recipe);
  params.softmax = path;
  params.accumulator = accumulator;
  params.engine = "emulate";
  attention_forward(params);
  return r;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

TEST(SimdTargets, AttentionHasTheSameBitsOnAll) {
  const TargetGuard guard;
  for (const Accumulator accumulator : {Accumulator::hopper, Accumulator::fp32}) {
    for (const SoftmaxPath path : {SoftmaxPath::exact, SoftmaxPath::direct}) {
      for (const char* recipe : {"default", "strict_causal", "per_tensor+e5m2"}) {
        if (path == SoftmaxPath::direct && std::string(recipe) == "strict_causal") continue;
        const float softcap = std::string(recipe) == "default" ? 20.0f : 0.0f;
        ASSERT_TRUE(force_target(""));
        const Result best = attention(recipe, path, accumulator, softcap);
        for (const std::string& target : target_names()) {
          ASSERT_TRUE(force_target(target));
          const Result other = attention(recipe, path, accumulator, softcap);
          EXPECT_TRUE(same_bits(best.out, other.out)) << recipe << " on " << target;
          EXPECT_TRUE(same_bits(best.lse, other.lse)) << recipe << " on " << target;
        }
      }
    }
  }
}

TEST(SimdTargets, ThereIsAPortableOneBesidesTheBest) {
  EXPECT_GE(target_names().size(), 1u);
  EXPECT_FALSE(force_target("no such target"));
}

TEST(SimdDecode, EqualsTheCodecs) {
  std::vector<std::uint8_t> codes(256 + 5);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  std::vector<float> value(codes.size()), power(codes.size());
  for (const DType format : {DType::f8_e4m3, DType::f8_e5m2}) {
    const bool e5m2 = format == DType::f8_e5m2;
    EXPECT_TRUE(stages().decode(codes.data(), 261, format, value.data(), power.data()));
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float expected = e5m2 ? E5m2::decode(codes[i]) : E4m3::decode(codes[i]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value[i])) << i;
      } else {
        EXPECT_EQ(std::memcmp(&value[i], &expected, 4), 0) << i;
      }
      if (!std::isfinite(expected)) continue;
      const float smallest = e5m2 ? 0x1p-14f : 0x1p-6f;
      const float field =
          expected == 0
              ? 0.0f
              : std::fmax(std::exp2(std::floor(std::log2(std::fabs(expected)))), smallest);
      EXPECT_EQ(power[i], field) << i;
    }
  }
}

TEST(SimdDecode, ReadsEveryCodeOf16Bits) {
  std::vector<std::uint16_t> codes(0x10000);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(codes.data());
  std::vector<float> value(codes.size());
  for (const DType format : {DType::bf16, DType::f16}) {
    EXPECT_TRUE(stages().decode(bytes, 0x10000, format, value.data(), nullptr));
    EXPECT_FALSE(stages().decode(bytes, 0x7c00, format, value.data(), nullptr));
    for (std::size_t i = 0; i < 0x7c00; ++i) {
      const float expected =
          format == DType::bf16 ? bf16_to_float(codes[i]) : f16_to_float(codes[i]);
      EXPECT_EQ(std::memcmp(&value[i], &expected, 4), 0) << i;
    }
  }
}

TEST(SimdCastP, EqualsTheCodecOnTheWholeRangeOfP) {
  std::vector<float> p;
  for (int i = 0; i < 40000; ++i)
    p.push_back(std::exp2(-20.0f + 28.0f * static_cast<float>(i) / 40000.0f));
  for (int code = 0; code < 0x78; ++code) {  // halfway points
    p.push_back((E4m3::decode(static_cast<std::uint8_t>(code)) +
                 E4m3::decode(static_cast<std::uint8_t>(code + 1))) /
                2);
  }
  p.push_back(0.0f);
  p.push_back(NAN);
  p.push_back(256.0f);
  while (p.size() % kLanes) p.push_back(1.0f);
  std::vector<std::uint8_t> codes(p.size());
  stages().cast_p(p.data(), static_cast<std::int64_t>(p.size()), codes.data());
  for (std::size_t i = 0; i < p.size(); ++i) ASSERT_EQ(codes[i], E4m3::encode(p[i])) << p[i];
}

TEST(SimdExp2, IsWithinOneUlpAndFlushesBelowTheNormalRange) {
  std::vector<float> x, y, sum(kLanes);
  for (int i = 0; i < 200000; ++i)
    x.push_back(-130.0f + 140.0f * static_cast<float>(i) / 200000.0f);
  y.resize(x.size());
  stages().exp2_sum(x.data(), static_cast<std::int64_t>(x.size()), 1.0f, 0.0f, 0.0f, y.data(),
                    sum.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp2(static_cast<double>(x[i]));
    if (x[i] < -126.0f) {
      ASSERT_EQ(y[i], 0.0f) << x[i];
    } else {
      ASSERT_NEAR(y[i] / exact, 1.0, 0x1.2p-23) << x[i];
    }
  }
}

// The direct path's code against the formula, and its value against p: never further than the
// piecewise linear log2 allows.
TEST(SimdDirectCodes, AreTheRoundedLogarithm) {
  std::vector<float> s;
  for (int i = 0; i < 8000; ++i) s.push_back(-200.0f + static_cast<float>(i) * 0.04f);
  std::vector<std::uint8_t> codes(s.size());
  stages().direct_codes(s.data(), static_cast<std::int64_t>(s.size()), 0.5f, 3.25f, codes.data());
  for (std::size_t i = 0; i < s.size(); ++i) {
    const float x = std::fma(s[i], 0.5f, 3.25f);
    ASSERT_EQ(codes[i], x > 0 ? std::lrint(x) : 0) << s[i];
  }
}

}  // namespace
}  // namespace octavo::emulate::simd
