// SPDX-License-Identifier: Apache-2.0
// Stage `cast`, backwards: codes to FP32 values and, of FP8, the powers of two of their exponent
// fields. A BF16 or FP16 element is a code of two bytes.
#if defined(OCTAVO_SIMD_CAST_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_SIMD_CAST_INL_H
#undef OCTAVO_SIMD_CAST_INL_H
#else
#define OCTAVO_SIMD_CAST_INL_H
#endif

#include <cmath>
#include <cstring>

#include "core/e4m3.h"
#include "core/e5m2.h"
#include "core/half.h"
#include "core/int8.h"
#include "emulate/simd/common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::emulate::simd {
namespace HWY_NAMESPACE {

template <typename Codec>
bool decode_as(const std::uint8_t* codes, std::int64_t n, float* value, float* power) {
  const F32 d;
  const U32 du;
  const auto repair = hn::Set(d, Codec::power_of_two(127 - (1 - Codec::kMinExponent)));
  const auto smallest = hn::Set(d, Codec::power_of_two(Codec::kMinExponent));
  auto beyond = hn::Zero(du);
  std::int64_t i = 0;
  for (; i + lanes() <= n; i += lanes()) {
    const auto code = hn::PromoteTo(du, hn::LoadU(U8(), codes + i));
    const auto magnitude = hn::And(code, hn::Set(du, 0x7f));
    const auto sign = hn::ShiftLeft<24>(hn::AndNot(hn::Set(du, 0x7f), code));
    const auto x = hn::Mul(hn::BitCast(d, hn::ShiftLeft<Codec::kDrop>(magnitude)), repair);
    const auto exponent = hn::And(hn::BitCast(du, x), hn::Set(du, 0x7f800000u));
    const auto is_zero = hn::RebindMask(d, hn::Eq(magnitude, hn::Zero(du)));
    hn::StoreU(hn::BitCast(d, hn::Or(hn::BitCast(du, x), sign)), d, value + i);
    hn::StoreU(hn::IfThenZeroElse(is_zero, hn::Max(hn::BitCast(d, exponent), smallest)), d,
               power + i);
    beyond = hn::Max(beyond, magnitude);
  }
  bool finite =
      hn::AllFalse(I32(), hn::Gt(hn::BitCast(I32(), beyond), hn::Set(I32(), Codec::kMax)));
  for (; i < n; ++i) {
    const float x = Codec::decode(codes[i]);
    value[i] = x;
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(x) & 0x7f800000u;
    power[i] = x == 0 ? 0
                      : std::fmax(std::bit_cast<float>(exponent),
                                  Codec::power_of_two(Codec::kMinExponent));
    finite &= (codes[i] & 0x7f) <= Codec::kMax;
  }
  if (finite) return false;
  for (i = 0; i < n; ++i) value[i] = Codec::decode(codes[i]);
  return true;
}

bool decode_integers(const std::uint8_t* codes, std::int64_t n, float* value) {
  for (std::int64_t i = 0; i < n; ++i) value[i] = decode_int8(codes[i]);
  return false;
}

template <float (*kDecode)(std::uint16_t)>
bool decode_halves(const std::uint8_t* codes, std::int64_t n, float* value) {
  bool finite = true;
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t code;
    std::memcpy(&code, codes + 2 * i, 2);
    value[i] = kDecode(code);
    finite &= std::isfinite(value[i]);
  }
  return !finite;
}

bool decode(const std::uint8_t* codes, std::int64_t n, DType format, float* value, float* power) {
  if (format == DType::i8) return decode_integers(codes, n, value);
  if (format == DType::bf16) return decode_halves<bf16_to_float>(codes, n, value);
  if (format == DType::f16) return decode_halves<f16_to_float>(codes, n, value);
  return format == DType::f8_e5m2 ? decode_as<E5m2>(codes, n, value, power)
                                  : decode_as<E4m3>(codes, n, value, power);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::emulate::simd
HWY_AFTER_NAMESPACE();

#endif
