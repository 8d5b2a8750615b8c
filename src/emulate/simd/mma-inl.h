// SPDX-License-Identifier: Apache-2.0
// The matrix product of stages `qk` and `pv` in two arithmetics.
//
// fp32:    c <- fma(a[k], b[k], c), k = 0, 1, ..
//
// hopper:  what one FP8 wgmma instruction does for 32 products and its accumulator, measured on an
//          H200 bit by bit (tests/data/wgmma_h200.bin holds 32 k of its answers):
//            E    = the largest exponent among c and the products whose factors are not zero; a
//                   product's is the sum of its factors' exponent fields (subnormals: the smallest
//                   normal's), so its significand lies in [0, 4)
//            c <- truncate14(sum of truncate(x to a multiple of 2^(E - 13)) over c and products)
//          Both truncations go toward zero; truncate14 keeps 14 significant bits.
#if defined(OCTAVO_SIMD_MMA_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_SIMD_MMA_INL_H
#undef OCTAVO_SIMD_MMA_INL_H
#else
#define OCTAVO_SIMD_MMA_INL_H
#endif

#include "emulate/simd/common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::emulate::simd {
namespace HWY_NAMESPACE {

// ---- fp32: kRows x (kVectors vectors) of c stay in registers over the whole depth.
template <int kRows, int kVectors>
HWY_INLINE void fp32_block(const float* HWY_RESTRICT a, std::int64_t lda,
                           const float* HWY_RESTRICT b, std::int64_t ldb, float* HWY_RESTRICT c,
                           std::int64_t ldc, std::int64_t depth) {
  const F32 d;
  const std::int64_t n = lanes();
  VF acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::LoadU(d, c + r * ldc + v * n);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    VF y[kVectors];
    for (int v = 0; v < kVectors; ++v) y[v] = hn::LoadU(d, b + k * ldb + v * n);
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(d, a[r * lda + k]);
      for (int v = 0; v < kVectors; ++v) acc[r][v] = fma(x, y[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d, c + r * ldc + v * n);
  }
}

template <int kVectors>
HWY_INLINE void fp32_columns(const Matrix& a, const float* b, std::int64_t ldb, float* c,
                             std::int64_t ldc, std::int64_t rows, std::int64_t depth) {
  std::int64_t r = 0;
  for (; r + 6 <= rows; r += 6) {
    fp32_block<6, kVectors>(a.value + r * a.stride, a.stride, b, ldb, c + r * ldc, ldc, depth);
  }
  for (; r < rows; ++r) {
    fp32_block<1, kVectors>(a.value + r * a.stride, a.stride, b, ldb, c + r * ldc, ldc, depth);
  }
}

void mma_fp32(const Matrix& a, const Matrix& b, float* c, std::int64_t ldc, std::int64_t rows,
              std::int64_t cols, std::int64_t depth) {
  const std::int64_t n = lanes();
  std::int64_t j = 0;
  for (; j + 2 * n <= cols; j += 2 * n) {
    fp32_columns<2>(a, b.value + j, b.stride, c + j, ldc, rows, depth);
  }
  for (; j < cols; j += n) fp32_columns<1>(a, b.value + j, b.stride, c + j, ldc, rows, depth);
}

// ---- hopper
constexpr int kInstructionDepth = 32;
constexpr int kGridBits = 13;  // the grid is 2^(E - 13): 14 significant bits of the largest term

/// 2^13 / power, by exponent arithmetic; power is a power of two or 0 (then every term is 0 too).
HWY_INLINE VF grid_inverse(VF power) {
  const U32 du;
  const auto top = hn::Set(du, static_cast<std::uint32_t>(127 + kGridBits + 127) << 23);
  return hn::BitCast(F32(), hn::Sub(top, hn::BitCast(du, power)));
}

/// One instruction: 32 products onto c, for kRows rows and one vector of columns.
template <int kRows>
HWY_INLINE void hopper_step(const Matrix& a, const Matrix& b, float* c, std::int64_t ldc) {
  const F32 d;
  const U32 du;
  const I32 di;
  VF largest[kRows], inverse[kRows];
  hn::Vec<I32> sum[kRows];
  for (int r = 0; r < kRows; ++r) {
    const auto bits = hn::BitCast(du, hn::LoadU(d, c + r * ldc));
    const auto exponent = hn::BitCast(d, hn::And(bits, hn::Set(du, 0x7f800000u)));
    // Below 2^-100, an accumulator no real tensor reaches, c counts as 0: the inverse stays finite.
    largest[r] = hn::IfThenElseZero(hn::Ge(exponent, hn::Set(d, 0x1p-100f)), exponent);
  }
  for (int k = 0; k < kInstructionDepth; ++k) {
    const auto y = hn::LoadU(d, b.power + k * b.stride);
    for (int r = 0; r < kRows; ++r) {
      largest[r] = hn::Max(largest[r], hn::Mul(hn::Set(d, a.power[r * a.stride + k]), y));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    inverse[r] = grid_inverse(largest[r]);
    sum[r] = hn::ConvertTo(di, hn::Mul(hn::LoadU(d, c + r * ldc), inverse[r]));
  }
  for (int k = 0; k < kInstructionDepth; ++k) {
    const auto y = hn::LoadU(d, b.value + k * b.stride);
    for (int r = 0; r < kRows; ++r) {
      const auto product = hn::Mul(hn::Set(d, a.value[r * a.stride + k]), y);
      sum[r] = hn::Add(sum[r], hn::ConvertTo(di, hn::Mul(product, inverse[r])));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const auto exact = hn::BitCast(du, hn::ConvertTo(d, sum[r]));
    const auto kept = hn::BitCast(d, hn::And(exact, hn::Set(du, 0xfffffc00u)));
    hn::StoreU(hn::Mul(kept, hn::Mul(largest[r], hn::Set(d, 0x1p-13f))), d, c + r * ldc);
  }
}

template <int kRows>
HWY_INLINE void hopper_rows(Matrix a, const Matrix& b, float* c, std::int64_t ldc,
                            std::int64_t cols, std::int64_t depth) {
  for (std::int64_t j = 0; j < cols; j += lanes()) {
    for (std::int64_t k = 0; k < depth; k += kInstructionDepth) {
      const Matrix a_k{a.value + k, a.power + k, a.stride};
      const Matrix b_kj{b.value + k * b.stride + j, b.power + k * b.stride + j, b.stride};
      hopper_step<kRows>(a_k, b_kj, c + j, ldc);
    }
  }
}

void mma_hopper(const Matrix& a, const Matrix& b, float* c, std::int64_t ldc, std::int64_t rows,
                std::int64_t cols, std::int64_t depth) {
  std::int64_t r = 0;
  const auto from = [&](std::int64_t row) {
    return Matrix{a.value + row * a.stride, a.power + row * a.stride, a.stride};
  };
  for (; r + 4 <= rows; r += 4) hopper_rows<4>(from(r), b, c + r * ldc, ldc, cols, depth);
  for (; r < rows; ++r) hopper_rows<1>(from(r), b, c + r * ldc, ldc, cols, depth);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::emulate::simd
HWY_AFTER_NAMESPACE();

#endif
