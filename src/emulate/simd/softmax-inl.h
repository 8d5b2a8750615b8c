// SPDX-License-Identifier: Apache-2.0
// Row operations of the stages `softmax`, `requantise_p`, `pv` and `epilogue`.
#if defined(OCTAVO_SIMD_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_SIMD_SOFTMAX_INL_H
#undef OCTAVO_SIMD_SOFTMAX_INL_H
#else
#define OCTAVO_SIMD_SOFTMAX_INL_H
#endif

#include <limits>

#include "emulate/simd/common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::emulate::simd {
namespace HWY_NAMESPACE {

/// tanh(x) = 1 - 2 / (2^(2 x log2 e) + 1), on |x| and the sign put back.
HWY_INLINE VF tanh(VF x) {
  const F32 d;
  const auto one = hn::Set(d, 1.0f);
  const auto scaled = hn::Mul(hn::Abs(x), hn::Set(d, 2.885390082f));
  const auto e = exp2(hn::Min(scaled, hn::Set(d, 60.0f)));
  const auto y = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Eq(x, x), hn::CopySign(y, x), x);
}

void softcap(float* s, std::int64_t n, float scale, float bias, float factor) {
  const F32 d;
  for (std::int64_t i = 0; i < n; i += lanes()) {
    const auto x = fma(hn::LoadU(d, s + i), hn::Set(d, scale), hn::Set(d, bias));
    hn::StoreU(hn::Mul(hn::Set(d, factor), tanh(x)), d, s + i);
  }
}

void scale_columns(float* s, const float* descale, std::int64_t n) {
  const F32 d;
  for (std::int64_t i = 0; i < n; i += lanes()) {
    hn::StoreU(hn::Mul(hn::LoadU(d, s + i), hn::LoadU(d, descale + i)), d, s + i);
  }
}

float row_max(const float* s, std::int64_t n) {
  const F32 d;
  auto m = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::int64_t i = 0; i < n; i += lanes()) {
    const auto x = hn::LoadU(d, s + i);
    m = hn::IfThenElse(hn::Gt(x, m), x, m);  // NaN compares false: passed over
  }
  return hn::GetLane(hn::MaxOfLanes(d, m));
}

void exp2_sum(const float* s, std::int64_t n, float c, float offset, float alpha, float* p,
              float* sum) {
  const F32 d;
  for (std::int64_t r = 0; r < kLanes; r += lanes()) {
    auto total = hn::Mul(hn::LoadU(d, sum + r), hn::Set(d, alpha));
    for (std::int64_t i = r; i < n; i += kLanes) {
      const auto y = exp2(fma(hn::LoadU(d, s + i), hn::Set(d, c), hn::Set(d, offset)));
      hn::StoreU(y, d, p + i);
      total = hn::Add(total, y);
    }
    hn::StoreU(total, d, sum + r);
  }
}

void cast_p(const float* p, std::int64_t n, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < n; i += lanes()) {
    store_codes(e4m3_codes(hn::LoadU(F32(), p + i)), codes + i);
  }
}

void direct_codes(const float* s, std::int64_t n, float c, float offset, std::uint8_t* codes) {
  const F32 d;
  const U32 du;
  const auto unit = hn::Set(d, 0x1p23f);  // its last place is 1: adding rounds to an integer
  for (std::int64_t i = 0; i < n; i += lanes()) {
    const auto x = fma(hn::LoadU(d, s + i), hn::Set(d, c), hn::Set(d, offset));
    const auto positive = hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), x);
    const auto code = hn::Sub(hn::BitCast(du, hn::Add(positive, unit)), hn::BitCast(du, unit));
    const auto is_number = hn::RebindMask(du, hn::Eq(x, x));
    store_codes(hn::IfThenElse(is_number, code, hn::Set(du, 0x7f)), codes + i);
  }
}

void rescale(float* x, std::int64_t n, float factor) {
  const F32 d;
  for (std::int64_t i = 0; i < n; i += lanes()) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i);
  }
}

void promote(float* out, const float* x, std::int64_t n, float a, float b) {
  const F32 d;
  for (std::int64_t i = 0; i < n; i += lanes()) {
    const auto kept = hn::Mul(hn::LoadU(d, out + i), hn::Set(d, b));
    hn::StoreU(fma(hn::LoadU(d, x + i), hn::Set(d, a), kept), d, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::emulate::simd
HWY_AFTER_NAMESPACE();

#endif
