// SPDX-License-Identifier: Apache-2.0
// Stage `pv`: two-level accumulation. FP8 tensor cores keep 14 significant bits, so the product of
// one key tile goes into fresh accumulators and from there into FP32 registers:
//
//   O <- O * (alpha * unit_old / unit_new) + P8 V8        l <- l * alpha + P8 1
//
// O is kept in units of the tile's descale_v, so that rescaling, promotion and descale are one
// fused multiply-add; the row sum l comes out of 8 rows of ones beside V^T.
//
// 16 bits: one level, O <- O * alpha + P V in the accumulators, l <- l * alpha + sum p.
#pragma once

#include <cstdint>

#include "sm90/attention/requantise_p.cuh"
#include "sm90/attention/shared.h"
#include "sm90/ptx/opaque.cuh"

namespace octavo::sm90 {

/// The unit of O and the largest that it has had; 0: nothing yet.
struct OutputUnit {
  float now = 0, top = 0;
};

/// The output of a thread's two rows and their sums.
template <typename Traits>
struct Output {
  float o[Traits::kHeadDimV / 2] = {};  // in the accumulator's layout
  float l[2] = {};
  OutputUnit unit[2];
};

/// What a step multiplies: O by `keep`, the product by `add` (1 unless units are far apart).
struct Promotion {
  float alpha[2];  // 2^(m_old - m_new), of the row sums
  float keep[2];   // alpha and the change of unit, of O
  float add[2] = {1.0f, 1.0f};
  bool plain = true;  // add is 1
};

/// Factors that bring O and the product to one unit.
struct UnitChange {
  float keep = 1.0f;  // times alpha, of O
  float add = 1.0f;   // of the product
};

/// From the unit to that of this tile, unless it is 2^80 times smaller than any before (shared.h,
/// TileNote): O, of up to 2^24 units when it was written, would overflow.
__device__ inline UnitChange change_unit(OutputUnit& unit, float descale) {
  constexpr float kFar = 0x1p80f;
  if (unit.top > descale * kFar) return {1.0f, __fdividef(descale, unit.now)};
  const float keep = descale > 0 ? __fdividef(unit.now, descale) : 0.0f;
  unit.now = descale;
  unit.top = fmaxf(unit.top, descale);
  return {keep, 1.0f};
}

__device__ inline void set_unit(Promotion& step, int half, UnitChange change) {
  step.keep[half] = step.alpha[half] * change.keep;
  step.add[half] = change.add;
  if (change.add != 1.0f) step.plain = false;
}

/// Rows of V^T that one product takes: registers, not the tensor cores, set this. Where the next
/// tile's scores are under way as well during the last promotion, few are left for it at d 256.
template <typename Traits>
struct Chunks {
  static constexpr int kRows = Traits::kHeadDimV == 96 ? 96 : 64;
  static constexpr int kLastRows = Traits::kStartsEarly && Traits::kHeadDimV == 256 ? 16 : kRows;
  static constexpr int kCount = Traits::kHeadDimV / kRows + (kLastRows < kRows ? 1 : 0);
  static constexpr int first(int chunk) {
    return chunk + 1 == kCount ? Traits::kHeadDimV - kLastRows : chunk * kRows;
  }
  static constexpr int rows(int chunk) {
    return chunk + 1 == kCount ? kLastRows : first(chunk + 1) - first(chunk);
  }
  static constexpr int width(int chunk) {
    return rows(chunk) + (chunk + 1 == kCount ? kOnesRows : 0);
  }
  static_assert(Traits::kHeadDimV % kRows == 0);
};

/// Words of products [kBegin, kEnd); they stay in registers of their own from then on.
template <int kBegin, int kEnd, typename Codes, int kScores, int kPWords>
__device__ inline void make_words(Codes& codes, float (&s)[kScores], std::uint32_t (&p)[kPWords]) {
  for_steps<kBegin, kEnd>([&](auto step) {
    codes.template prepare<step>(s);
    codes.template make<step>(s, p);
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::pin(p[4 * step + i]);
  });
}

/// Issues products [kBegin, kEnd) of P with one chunk, of 32 keys each.
template <typename Traits, int kChunk, int kBegin = 0, int kEnd = Traits::kSteps>
__device__ inline void start_products(float (&acc)[Chunks<Traits>::width(kChunk) / 2],
                                      const std::uint32_t (&p)[Traits::kPWords], std::uint32_t v) {
  const std::uint32_t chunk = v + Chunks<Traits>::first(kChunk) * Traits::kBlockN / 16;
  ptx::wgmma_fence();
#pragma unroll
  for (int step = kBegin; step < kEnd; ++step) {
    const std::uint64_t b = ptx::descriptor(chunk + static_cast<std::uint32_t>(step) * 2);
    if (step == 0) {
      ptx::wgmma_rs<Traits::kVFormat, false>(acc, p + 4 * step, b);
    } else {
      ptx::wgmma_rs<Traits::kVFormat, true>(acc, p + 4 * step, b);
    }
  }
}

/// Issues the product of P with one chunk.
template <typename Traits, int kChunk>
__device__ inline void start_chunk(float (&acc)[Chunks<Traits>::width(kChunk) / 2],
                                   const std::uint32_t (&p)[Traits::kPWords], std::uint32_t v) {
  start_products<Traits, kChunk>(acc, p, v);
  ptx::wgmma_commit();
}

template <typename Traits, int kChunk, int kCount>
__device__ inline void promote(Output<Traits>& out, float (&acc)[kCount], const Promotion& step) {
  constexpr int kColumns = Chunks<Traits>::rows(kChunk) / 2;
  constexpr int kFirst = Chunks<Traits>::first(kChunk) / 2;
  if (!step.plain) {
#pragma unroll
    for (int r = 0; r < kColumns; ++r) acc[r] *= step.add[fragment_half(r)];
  }
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
    out.o[kFirst + r] = __fmaf_rn(out.o[kFirst + r], step.keep[fragment_half(r)], acc[r]);
  }
  if constexpr (kCount > kColumns && !Traits::Scores::kFoldsV) {  // the ones: all columns alike
    out.l[0] = __fmaf_rn(out.l[0], step.alpha[0], acc[kColumns]);
    out.l[1] = __fmaf_rn(out.l[1], step.alpha[1], acc[kColumns + 2]);
  }
}

/// Adds chunk kChunk to the output. At d 256 in a loop of one turn (`once` is 1), which the
/// compiler cannot know: it moves no arithmetic in or out, so that registers of this product and of
/// the next need not exist at a time.
template <typename Traits, int kChunk, int kCount>
__device__ inline void promote_in_place(Output<Traits>& out, float (&acc)[kCount],
                                        const Promotion& step, int once) {
  if constexpr (Traits::kHeadDimV < 256) {
    promote<Traits, kChunk>(out, acc, step);
  } else {
    int turn = 0;
#pragma unroll 1
    do {
      promote<Traits, kChunk>(out, acc, step);
    } while (++turn < once);
  }
}

/// Finishes chunk kChunk, which is under way, and does those behind it. Where registers allow, the
/// next product runs while this one is promoted; if not, other warpgroups keep the tensor cores
/// busy.
template <typename Traits, int kChunk, int kCount, typename Meanwhile, typename Finished>
__device__ inline void finish_chunks(Output<Traits>& out, float (&acc)[kCount],
                                     const std::uint32_t (&p)[Traits::kPWords], std::uint32_t v,
                                     const Promotion& step, int once, const Meanwhile& meanwhile,
                                     const Finished& finished) {
  constexpr bool kLast = kChunk + 1 == Chunks<Traits>::kCount;
  constexpr bool kOverlap = !kLast && Traits::kOverlapsPromotion;
  constexpr int kNext = kLast ? kChunk : kChunk + 1;
  float next[Chunks<Traits>::width(kNext) / 2];
  if constexpr (kOverlap) start_chunk<Traits, kNext>(next, p, v);
  if constexpr (kLast) meanwhile();
  ptx::wgmma_wait<kOverlap ? 1 : 0>();
  ptx::pin(acc);
  if constexpr (kLast) finished();
  promote_in_place<Traits, kChunk>(out, acc, step, once);
  if constexpr (!kOverlap && !kLast) start_chunk<Traits, kNext>(next, p, v);
  if constexpr (!kLast) {
    finish_chunks<Traits, kNext>(out, next, p, v, step, once, meanwhile, finished);
  }
}

/// Makes P and multiplies it with V. `v_is_there` waits for V, `before_products` runs before the
/// first product, `meanwhile` while the last is under way, `finished` before its promotion. Where
/// not all of P comes first, products of the first chunk start as soon as their words are there.
template <typename Traits, typename Codes, typename Wait, typename Before, typename Meanwhile,
          typename Finished>
__device__ inline void pv(Output<Traits>& out, Codes codes, float (&s)[Traits::kScores],
                          std::uint32_t v, const Promotion& step, int once, const Wait& v_is_there,
                          const Before& before_products, const Meanwhile& meanwhile,
                          const Finished& finished) {
  constexpr int kFirst = Traits::kShape.first_products;
  constexpr int kSteps = Traits::kSteps;
  std::uint32_t p[Traits::kPWords];
  float acc[Chunks<Traits>::width(0) / 2];
  if constexpr (kFirst == kSteps) {
    for_steps<0, kSteps>([&](auto step) { codes.template prepare<step>(s); });
    v_is_there();
    for_steps<0, kSteps>([&](auto step) { codes.template make<step>(s, p); });
    ptx::pin(p);
    before_products();
    start_products<Traits, 0>(acc, p, v);
  } else {
    make_words<0, kFirst>(codes, s, p);
    v_is_there();
    before_products();
    start_products<Traits, 0, 0, kFirst>(acc, p, v);
    make_words<kFirst, kSteps>(codes, s, p);
    start_products<Traits, 0, kFirst, kSteps>(acc, p, v);
  }
  ptx::wgmma_commit();
  finish_chunks<Traits, 0>(out, acc, p, v, step, once, meanwhile, finished);
}

/// Columns of V that one product of 16-bit operands takes.
template <typename Traits>
struct Columns {
  static constexpr int kWidth =
      Traits::kHeadDimV % 128 == 0 ? 128 : (Traits::kHeadDimV == 96 ? 96 : 64);
  static constexpr int kCount = Traits::kHeadDimV / kWidth;
  static constexpr std::uint32_t kPieceBytes = Traits::kBlockN * 128;
  static_assert(Traits::kHeadDimV % kWidth == 0);
};

/// 16 bits: starts the product of P and V, which goes into O itself, since the tensor cores' sums
/// have all of FP32's bits.
template <typename Traits>
__device__ inline void start_pv(Output<Traits>& out, const std::uint32_t (&p)[Traits::kPWords],
                                std::uint32_t v) {
  using Of = Columns<Traits>;
  constexpr std::uint32_t kStep = Traits::kStepKeys * 128 / 16;
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < Traits::kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < Of::kCount; ++i) {
      // A product of 64 columns is of one piece, of 96 of one and a half, of 128 of two.
      const std::uint32_t at = v + i * (Of::kWidth / 64) * (Of::kPieceBytes / 16) + step * kStep;
      ptx::wgmma_rs_by_rows<Traits::kVFormat, Of::kWidth>(
          out.o + i * Of::kWidth / 2, p + 4 * step,
          ptx::transposed_descriptor(at, Of::kPieceBytes));
    }
  }
  ptx::wgmma_commit();
}

/// Brings O to the new maximum.
template <typename Traits>
__device__ inline void rescale(Output<Traits>& out, const float (&alpha)[2]) {
  // Since m seldom moves (kMaximumSlack), a branch saves all but the first rescale: d 256 + 8 to 10
  // %, up to d 128 - 1 to - 3 %, so not there.
  constexpr bool kBranches = Traits::kHeadDimV > 128;
  const bool changes = (alpha[0] != 1.0f) | (alpha[1] != 1.0f);
  if (!kBranches || __any_sync(0xffffffffu, changes)) {
#pragma unroll
    for (int r = 0; r < Traits::kHeadDimV / 2; ++r) out.o[r] *= alpha[fragment_half(r)];
  }
}

/// Brings l there too, and adds the row sums of this thread's keys.
template <typename Traits>
__device__ inline void add_row_sums(Output<Traits>& out, const float (&alpha)[2],
                                    const RoundedP<Traits>& weights) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    out.l[half] = __fmaf_rn(out.l[half], alpha[half], weights.sum(half));
  }
}

}  // namespace octavo::sm90
