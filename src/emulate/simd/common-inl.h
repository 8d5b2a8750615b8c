// SPDX-License-Identifier: Apache-2.0
// Fused multiply-add on every target, exp2 and E4M3 on vectors. Per-target include guard.
#if defined(OCTAVO_SIMD_COMMON_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_SIMD_COMMON_INL_H
#undef OCTAVO_SIMD_COMMON_INL_H
#else
#define OCTAVO_SIMD_COMMON_INL_H
#endif

#include <hwy/highway.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace octavo::emulate::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 8 lanes, so that "residue i % 8" means the same on every target.
using F32 = hn::CappedTag<float, kLanes>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U8 = hn::Rebind<std::uint8_t, F32>;
using VF = hn::Vec<F32>;
using VU = hn::Vec<U32>;

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(F32())); }

/// a * b + c with one rounding, also where the target has no such instruction.
HWY_INLINE VF fma(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const F32 d;
  HWY_ALIGN float x[kLanes], y[kLanes], z[kLanes];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (std::int64_t i = 0; i < lanes(); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#endif
}

/// 2^x for x up to 127; 0 below -126 (the GPU's ex2.approx.ftz flushes subnormal results); NaN
/// stays. Cody-Waite reduction to [-1/2, 1/2] and a degree 6 polynomial, relative error below
/// 2^-23: coefficients from a weighted Chebyshev fit of 2^x.
HWY_INLINE VF exp2(VF x) {
  const F32 d;
  const I32 di;
  const auto clamped = hn::Max(hn::Min(x, hn::Set(d, 127.0f)), hn::Set(d, -127.0f));
  const auto whole = hn::Round(clamped);
  const auto f = hn::Sub(clamped, whole);
  auto y = hn::Set(d, 0x1.41a6fcp-13f);
  y = fma(y, f, hn::Set(d, 0x1.5f44f0p-10f));
  y = fma(y, f, hn::Set(d, 0x1.3b2dfep-7f));
  y = fma(y, f, hn::Set(d, 0x1.c6aed6p-5f));
  y = fma(y, f, hn::Set(d, 0x1.ebfbdap-3f));
  y = fma(y, f, hn::Set(d, 0x1.62e430p-1f));
  y = fma(y, f, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(di, whole));
  const auto power = hn::BitCast(d, hn::Add(hn::BitCast(di, y), exponent));
  const auto flushed = hn::IfThenElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Zero(d), power);
  return hn::IfThenElse(hn::Eq(x, x), flushed, x);
}

/// E4M3 codes (in 32-bit lanes) of values >= 0 or NaN, at most 448: core/fp8.h on vectors.
HWY_INLINE VU e4m3_codes(VF p) {
  const F32 d;
  const U32 du;
  const auto bits = hn::BitCast(du, p);
  const auto grid = hn::Set(d, 0x1p14f);  // its last place is 2^-9
  const auto small = hn::Sub(hn::BitCast(du, hn::Add(p, grid)), hn::BitCast(du, grid));
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<20>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7ffff))));
  const auto normal = hn::Min(hn::Sub(rounded, hn::Set(du, 120u << 3)), hn::Set(du, 0x7e));
  const auto is_small = hn::RebindMask(du, hn::Lt(p, hn::Set(d, 0x1p-6f)));
  const auto is_number = hn::RebindMask(du, hn::Eq(p, p));
  return hn::IfThenElse(is_number, hn::IfThenElse(is_small, small, normal), hn::Set(du, 0x7f));
}

HWY_INLINE void store_codes(VU codes, std::uint8_t* out) {
  hn::StoreU(hn::DemoteTo(U8(), hn::BitCast(I32(), codes)), U8(), out);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::emulate::simd
HWY_AFTER_NAMESPACE();

#endif
