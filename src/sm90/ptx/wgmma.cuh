// SPDX-License-Identifier: Apache-2.0
// Warpgroup matrix products: FP8 x FP8, BF16 x BF16 and FP16 x FP16 -> FP32, INT8 x INT8 -> INT32.
// PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operation".
//
// d is this thread's share of a 64 x kN accumulator: d[4 j + i], i < 2: row lane / 4 + 16 warp,
// i >= 2: 8 rows below; column 8 j + 2 (lane % 4) + i % 2.
#pragma once

#include <cstdint>
#include <type_traits>

#include "octavo/tensor.h"
#include "sm90/ptx/mbarrier.cuh"

namespace octavo::sm90::ptx {

/// Orders register and shared-memory accesses before the warpgroup's next products.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most kPending of the committed groups are under way.
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving accesses of these registers across this point. No instruction.
template <int kCount>
__device__ inline void pin(float (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int kCount>
__device__ inline void pin(int (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
__device__ inline void pin(std::uint32_t& r) { asm volatile("" : "+r"(r)::"memory"); }
template <int kCount>
__device__ inline void pin(std::uint32_t (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

/// An operand in shared memory: rows of 128 bytes, contiguous along the reduction, stored by the
/// copy engine with its 128-byte swizzle, groups of 8 rows 1024 bytes apart. PTX ISA, "Matrix
/// Descriptor". The low word alone, so that address arithmetic stays in 32 bits: 16 bytes count 1.
__device__ inline std::uint32_t operand_word(const void* tile) {
  return ((shared_address(tile) & 0x3ffffu) >> 4) | (1u << 16);
}
__device__ inline std::uint64_t descriptor(std::uint32_t word) {
  constexpr std::uint32_t kHigh = (1024u >> 4) | (1u << 30);  // group pitch; 128-byte swizzle
  return (static_cast<std::uint64_t>(kHigh) << 32) | word;
}

/// B of a 16-bit product whose rows in shared memory are those of the reduction: pieces of 128
/// bytes of each row, swizzled, `piece_bytes` apart. The word of a row that is a multiple of 8.
__device__ inline std::uint64_t transposed_descriptor(std::uint32_t word,
                                                      std::uint32_t piece_bytes) {
  return descriptor((word & 0xffffu) | (piece_bytes >> 4) << 16);
}

// Operand lists by number of accumulators, each of them a shorter one and what follows; io is "+f"
// where they are added to, "=f" where not, so that what they held before need not be kept.
#define OCTAVO_D12 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"
#define OCTAVO_D24 OCTAVO_D12 ", %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23"
#define OCTAVO_D32 OCTAVO_D24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define OCTAVO_D36 OCTAVO_D32 ", %32, %33, %34, %35"
#define OCTAVO_D48 OCTAVO_D36 ", %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define OCTAVO_D52 OCTAVO_D48 ", %48, %49, %50, %51"
#define OCTAVO_D64 OCTAVO_D52 ", %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OCTAVO_F4(io, i) io(d[i]), io(d[i + 1]), io(d[i + 2]), io(d[i + 3])
#define OCTAVO_F12(io) OCTAVO_F4(io, 0), OCTAVO_F4(io, 4), OCTAVO_F4(io, 8)
#define OCTAVO_F24(io) OCTAVO_F12(io), OCTAVO_F4(io, 12), OCTAVO_F4(io, 16), OCTAVO_F4(io, 20)
#define OCTAVO_F32(io) OCTAVO_F24(io), OCTAVO_F4(io, 24), OCTAVO_F4(io, 28)
#define OCTAVO_F36(io) OCTAVO_F32(io), OCTAVO_F4(io, 32)
#define OCTAVO_F48(io) OCTAVO_F36(io), OCTAVO_F4(io, 36), OCTAVO_F4(io, 40), OCTAVO_F4(io, 44)
#define OCTAVO_F52(io) OCTAVO_F48(io), OCTAVO_F4(io, 48)
#define OCTAVO_F64(io) OCTAVO_F52(io), OCTAVO_F4(io, 52), OCTAVO_F4(io, 56), OCTAVO_F4(io, 60)

// tail: the scales of A and B, and for 16-bit operands which of those in shared memory are
// transposed.
#define OCTAVO_WGMMA_SS(io, add, n, k, formats, tail, count, a, b)                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " #add                                           \
               ", 0;\n"                                                                           \
               "wgmma.mma_async.sync.aligned.m64n" #n "k" #k ".f32." formats " {" OCTAVO_D##count \
               "}, %" #a ", %" #b ", p, " tail ";\n}"                                             \
               : OCTAVO_F##count(io)                                                              \
               : "l"(a_descriptor), "l"(b_descriptor))
#define OCTAVO_WGMMA_RS(io, add, n, k, formats, tail, count, a0, a1, a2, a3, b)                   \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " #add                                           \
               ", 0;\n"                                                                           \
               "wgmma.mma_async.sync.aligned.m64n" #n "k" #k ".f32." formats " {" OCTAVO_D##count \
               "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p, " tail ";\n}"            \
               : OCTAVO_F##count(io)                                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor))
#define OCTAVO_ADDED_OR_NOT(kind, n, k, formats, tail, ...)         \
  if constexpr (kAccumulate) {                                      \
    OCTAVO_WGMMA_##kind("+f", 1, n, k, formats, tail, __VA_ARGS__); \
  } else {                                                          \
    OCTAVO_WGMMA_##kind("=f", 0, n, k, formats, tail, __VA_ARGS__); \
  }
#define OCTAVO_EACH_FP8(kind, n, ...)                                  \
  if constexpr (kFormat == DType::f8_e4m3) {                           \
    OCTAVO_ADDED_OR_NOT(kind, n, 32, "e4m3.e4m3", "1, 1", __VA_ARGS__) \
  } else if constexpr (kFormat == DType::f8_e5m2) {                    \
    OCTAVO_ADDED_OR_NOT(kind, n, 32, "e4m3.e5m2", "1, 1", __VA_ARGS__) \
  }
#define OCTAVO_EACH_16BIT(kind, n, tail, ...)                        \
  if constexpr (kFormat == DType::bf16) {                            \
    OCTAVO_ADDED_OR_NOT(kind, n, 16, "bf16.bf16", tail, __VA_ARGS__) \
  } else if constexpr (kFormat == DType::f16) {                      \
    OCTAVO_ADDED_OR_NOT(kind, n, 16, "f16.f16", tail, __VA_ARGS__)   \
  }

/// d (+)= A B^T for 32 bytes of the reduction: A [64, ..] and B [kN, ..] in shared memory. 8 bits:
/// A E4M3, B of kFormat; 16 bits: both of kFormat.
template <DType kFormat, bool kAccumulate>
__device__ inline void wgmma_ss(float (&d)[64], std::uint64_t a_descriptor,
                                std::uint64_t b_descriptor) {
  OCTAVO_EACH_FP8(SS, 128, 64, 64, 65)
  OCTAVO_EACH_16BIT(SS, 128, "1, 1, 0, 0", 64, 64, 65)
}
template <DType kFormat, bool kAccumulate>
__device__ inline void wgmma_ss(float (&d)[32], std::uint64_t a_descriptor,
                                std::uint64_t b_descriptor) {
  OCTAVO_EACH_16BIT(SS, 64, "1, 1, 0, 0", 32, 32, 33)
}

/// The same of INT8, two's complement.
template <bool kAccumulate>
__device__ inline void wgmma_ss(int (&d)[64], std::uint64_t a_descriptor,
                                std::uint64_t b_descriptor) {
  if constexpr (kAccumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {" OCTAVO_D64 "}, %64, %65, p;\n}"
        : OCTAVO_F64("+r")
        : "l"(a_descriptor), "l"(b_descriptor));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {" OCTAVO_D64 "}, %64, %65, p;\n}"
        : OCTAVO_F64("=r")
        : "l"(a_descriptor), "l"(b_descriptor));
  }
}

/// The same with A in registers, as below.
template <bool kAccumulate>
__device__ inline void wgmma_rs(int (&d)[64], const std::uint32_t* a, std::uint64_t b_descriptor) {
  if constexpr (kAccumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {" OCTAVO_D64
        "}, {%64, %65, %66, %67}, %68, p;\n}"
        : OCTAVO_F64("+r")
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {" OCTAVO_D64
        "}, {%64, %65, %66, %67}, %68, p;\n}"
        : OCTAVO_F64("=r")
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor));
  }
}

/// The product with A in registers: a[0] and a[2] hold row lane / 4, bytes 4 (lane % 4) + {0 .. 3}
/// of the reduction and 16 more; a[1] and a[3] those 8 rows below.
template <DType kFormat, bool kAccumulate, int kCount>
__device__ inline void wgmma_rs(float (&d)[kCount], const std::uint32_t* a,
                                std::uint64_t b_descriptor) {
  if constexpr (kCount == 12) {
    OCTAVO_EACH_FP8(RS, 24, 12, 12, 13, 14, 15, 16)
  } else if constexpr (kCount == 24) {
    OCTAVO_EACH_FP8(RS, 48, 24, 24, 25, 26, 27, 28)
  } else if constexpr (kCount == 32) {
    OCTAVO_EACH_FP8(RS, 64, 32, 32, 33, 34, 35, 36)
  } else if constexpr (kCount == 36) {
    OCTAVO_EACH_FP8(RS, 72, 36, 36, 37, 38, 39, 40)
  } else if constexpr (kCount == 52) {
    OCTAVO_EACH_FP8(RS, 104, 52, 52, 53, 54, 55, 56)
  } else {
    static_assert(kCount == 64);
    OCTAVO_EACH_FP8(RS, 128, 64, 64, 65, 66, 67, 68)
    OCTAVO_EACH_16BIT(RS, 128, "1, 1, 0", 64, 64, 65, 66, 67, 68)
  }
}

/// d += A B for 16 of the reduction, A of 16 bits in registers, B [16, kN] by rows in shared memory
/// (transposed_descriptor): a[0] and a[2] hold row lane / 4, k = 2 (lane % 4) + {0, 1} and 8 more;
/// a[1] and a[3] those 8 rows below.
template <DType kFormat, int kN>
__device__ inline void wgmma_rs_by_rows(float* d, const std::uint32_t* a,
                                        std::uint64_t b_descriptor) {
  constexpr bool kAccumulate = true;
  if constexpr (kN == 64) {
    OCTAVO_EACH_16BIT(RS, 64, "1, 1, 1", 32, 32, 33, 34, 35, 36)
  } else if constexpr (kN == 96) {
    OCTAVO_EACH_16BIT(RS, 96, "1, 1, 1", 48, 48, 49, 50, 51, 52)
  } else {
    static_assert(kN == 128);
    OCTAVO_EACH_16BIT(RS, 128, "1, 1, 1", 64, 64, 65, 66, 67, 68)
  }
}

#undef OCTAVO_EACH_FP8
#undef OCTAVO_EACH_16BIT
#undef OCTAVO_ADDED_OR_NOT
#undef OCTAVO_WGMMA_SS
#undef OCTAVO_WGMMA_RS
#undef OCTAVO_F4
#undef OCTAVO_D12
#undef OCTAVO_D24
#undef OCTAVO_D32
#undef OCTAVO_D36
#undef OCTAVO_D48
#undef OCTAVO_D52
#undef OCTAVO_D64
#undef OCTAVO_F12
#undef OCTAVO_F24
#undef OCTAVO_F32
#undef OCTAVO_F36
#undef OCTAVO_F48
#undef OCTAVO_F52
#undef OCTAVO_F64

}  // namespace octavo::sm90::ptx
