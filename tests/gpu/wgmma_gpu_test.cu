// SPDX-License-Identifier: Apache-2.0
// The wrappers of sm90/ptx on the device: boxes through the copy engine, barrier phases, and matrix
// products of small integers, which FP8 holds and the tensor cores add exactly.
#include <gtest/gtest.h>

#include <vector>

#include "core/e4m3.h"
#include "core/e5m2.h"
#include "core/int8.h"
#include "gpu/device_memory.h"
#include "sm90/ptx/tma.cuh"
#include "sm90/ptx/wgmma.cuh"
#include "sm90/tensor_map.h"
#include "sm90/tile/fragment.h"

namespace octavo::test {
namespace {

using sm90::fragment_column;
using sm90::fragment_first_column;
using sm90::fragment_half;
using sm90::fragment_row;

constexpr int kDepth = 128;  // of the reduction: four instructions

struct alignas(1024) Tiles {
  std::uint8_t a[64 * kDepth];
  std::uint8_t b[128 * kDepth];
  std::uint64_t full;
};

__device__ Tiles& load_tiles(const CUtensorMap& a, const CUtensorMap& b, int rows) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& tiles = *reinterpret_cast<Tiles*>(memory);
  if (threadIdx.x == 0) {
    sm90::ptx::mbarrier_init(&tiles.full, 1);
    sm90::ptx::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    sm90::ptx::mbarrier_arrive_expect_tx(&tiles.full,
                                         static_cast<std::uint32_t>((64 + rows) * kDepth));
    sm90::ptx::tma_load_4d(tiles.a, &a, &tiles.full, 0, 0, 0, 0);
    sm90::ptx::tma_load_4d(tiles.b, &b, &tiles.full, 0, 0, 0, 0);
  }
  sm90::ptx::mbarrier_wait(&tiles.full, 0);
  return tiles;
}

template <int kCount>
__device__ void store(const float (&d)[kCount], float* out, int columns) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int r = 0; r < kCount; ++r) {
    const int row = fragment_row(thread) + 8 * fragment_half(r);
    out[row * columns + fragment_first_column(thread) + fragment_column(r)] = d[r];
  }
}

template <DType kFormat>
__global__ void __launch_bounds__(128)
    product_ss(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
               float* out) {
  Tiles& tiles = load_tiles(a, b, 128);
  float d[64];
  const std::uint32_t wa = sm90::ptx::operand_word(tiles.a), wb = sm90::ptx::operand_word(tiles.b);
  sm90::ptx::wgmma_fence();
  sm90::ptx::wgmma_ss<kFormat, false>(d, sm90::ptx::descriptor(wa), sm90::ptx::descriptor(wb));
#pragma unroll
  for (std::uint32_t step = 1; step < kDepth / 32; ++step) {
    sm90::ptx::wgmma_ss<kFormat, true>(d, sm90::ptx::descriptor(wa + 2 * step),
                                       sm90::ptx::descriptor(wb + 2 * step));
  }
  sm90::ptx::wgmma_commit();
  sm90::ptx::wgmma_wait<0>();
  sm90::ptx::pin(d);
  store(d, out, 128);
}

constexpr int kWords = kDepth / 8;

/// A for registers: the four bytes of a word are k = 4 c + {0 .. 3} of a row, 16 more in words
/// 2, 3.
__device__ void load_words(std::uint32_t (&words)[kWords], const std::uint8_t* a_rows) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int w = 0; w < kWords; ++w) {
    const int row = fragment_row(thread) + 8 * (w % 2);
    const int k = w / 4 * 32 + w / 2 % 2 * 16 + thread % 4 * 4;
    words[w] = *reinterpret_cast<const std::uint32_t*>(a_rows + row * kDepth + k);
  }
  sm90::ptx::pin(words);
}

/// INT8, whose sums begin at the bits of 1.5 * 2^23 and end as those of floats.
/// `kRegisters`: A from `a_rows`, not from shared memory.
template <bool kRegisters>
__global__ void __launch_bounds__(128)
    product_int8(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                 const std::uint8_t* a_rows, float* out) {
  Tiles& tiles = load_tiles(a, b, 128);
  int sums[64];
#pragma unroll
  for (int& sum : sums) sum = __float_as_int(kInt8Zero);
  sm90::ptx::pin(sums);
  const std::uint32_t wa = sm90::ptx::operand_word(tiles.a), wb = sm90::ptx::operand_word(tiles.b);
  std::uint32_t words[kWords];
  if constexpr (kRegisters) load_words(words, a_rows);
  sm90::ptx::wgmma_fence();
#pragma unroll
  for (std::uint32_t step = 0; step < kDepth / 32; ++step) {
    const auto b_step = sm90::ptx::descriptor(wb + 2 * step);
    if constexpr (kRegisters) {
      sm90::ptx::wgmma_rs<true>(sums, words + 4 * step, b_step);
    } else {
      sm90::ptx::wgmma_ss<true>(sums, sm90::ptx::descriptor(wa + 2 * step), b_step);
    }
  }
  sm90::ptx::wgmma_commit();
  sm90::ptx::wgmma_wait<0>();
  sm90::ptx::pin(sums);
  float d[64];
  for (int r = 0; r < 64; ++r) d[r] = __int_as_float(sums[r]) - kInt8Zero;
  store(d, out, 128);
}

template <DType kFormat, int kColumns>
__global__ void __launch_bounds__(128)
    product_rs(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
               const std::uint8_t* a_rows, float* out) {
  Tiles& tiles = load_tiles(a, b, kColumns);
  std::uint32_t words[kWords];
  load_words(words, a_rows);
  float d[kColumns / 2];
  const std::uint32_t wb = sm90::ptx::operand_word(tiles.b);
  sm90::ptx::wgmma_fence();
  sm90::ptx::wgmma_rs<kFormat, false>(d, words, sm90::ptx::descriptor(wb));
#pragma unroll
  for (std::uint32_t step = 1; step < kDepth / 32; ++step) {
    sm90::ptx::wgmma_rs<kFormat, true>(d, words + 4 * step, sm90::ptx::descriptor(wb + 2 * step));
  }
  sm90::ptx::wgmma_commit();
  sm90::ptx::wgmma_wait<0>();
  sm90::ptx::pin(d);
  store(d, out, kColumns);
}

/// Small integers that both FP8 formats hold; of INT8 all that there are.
std::vector<std::uint8_t> integers(int rows, DType format, std::uint64_t seed) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * kDepth));
  std::uint64_t state = seed;
  for (std::uint8_t& code : codes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    if (format == DType::i8) {
      code = static_cast<std::uint8_t>(state >> 56);
      continue;
    }
    const auto value = static_cast<float>(static_cast<int>(state >> 61) - 4);  // -4 .. 3
    code = format == DType::f8_e5m2 ? E5m2::encode(value) : E4m3::encode(value);
  }
  return codes;
}

float value_of(std::uint8_t code, DType format) {
  if (format == DType::i8) return decode_int8(code);
  return format == DType::f8_e5m2 ? E5m2::decode(code) : E4m3::decode(code);
}

CUtensorMap map_of(const DeviceBytes& codes, int rows) {
  return sm90::make_tensor_map(
      {codes.get(), kDepth, rows, 1, 1, kDepth, rows * kDepth, rows * kDepth}, kDepth, rows);
}

template <typename Launch>
void expect_product(DType format, int columns, Launch launch) {
  const DType a_format = format == DType::i8 ? DType::i8 : DType::f8_e4m3;
  const auto a = integers(64, a_format, 1), b = integers(columns, format, 2);
  DeviceBytes da(a.size()), db(b.size()), out(static_cast<std::size_t>(64 * columns) * 4);
  da.upload(a.data(), a.size());
  db.upload(b.data(), b.size());
  launch(map_of(da, 64), map_of(db, columns), static_cast<const std::uint8_t*>(da.get()),
         static_cast<float*>(out.get()));
  sm90::check(cudaDeviceSynchronize(), "running the product");
  const auto got = download(static_cast<const float*>(out.get()), 64 * columns);
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < columns; ++j) {
      float want = 0;
      for (int k = 0; k < kDepth; ++k) {
        want += value_of(a[static_cast<std::size_t>(i * kDepth + k)], a_format) *
                value_of(b[static_cast<std::size_t>(j * kDepth + k)], format);
      }
      ASSERT_EQ(got[static_cast<std::size_t>(i * columns + j)], want)
          << "row " << i << " column " << j;
    }
  }
  out.expect_guard_untouched();
}

template <DType kFormat, int kColumns>
void expect_rs() {
  expect_product(
      kFormat, kColumns,
      [](const CUtensorMap& a, const CUtensorMap& b, const std::uint8_t* rows, float* out) {
        product_rs<kFormat, kColumns><<<1, 128, sizeof(Tiles)>>>(a, b, rows, out);
      });
}

TEST(Wgmma, SmokeSharedOperands) {
  expect_product(DType::f8_e4m3, 128,
                 [](const CUtensorMap& a, const CUtensorMap& b, const std::uint8_t*, float* out) {
                   product_ss<DType::f8_e4m3><<<1, 128, sizeof(Tiles)>>>(a, b, out);
                 });
  expect_product(DType::f8_e5m2, 128,
                 [](const CUtensorMap& a, const CUtensorMap& b, const std::uint8_t*, float* out) {
                   product_ss<DType::f8_e5m2><<<1, 128, sizeof(Tiles)>>>(a, b, out);
                 });
  expect_product(DType::i8, 128,
                 [](const CUtensorMap& a, const CUtensorMap& b, const std::uint8_t*, float* out) {
                   product_int8<false><<<1, 128, sizeof(Tiles)>>>(a, b, nullptr, out);
                 });
}

TEST(Wgmma, SmokeRegisterOperand) {
  expect_rs<DType::f8_e4m3, 64>();
  expect_rs<DType::f8_e4m3, 72>();
  expect_rs<DType::f8_e4m3, 104>();
  expect_rs<DType::f8_e5m2, 64>();
  expect_rs<DType::f8_e5m2, 72>();
  expect_rs<DType::f8_e4m3, 128>();
  expect_rs<DType::f8_e5m2, 104>();
  expect_product(
      DType::i8, 128,
      [](const CUtensorMap& a, const CUtensorMap& b, const std::uint8_t* rows, float* out) {
        product_int8<true><<<1, 128, sizeof(Tiles)>>>(a, b, rows, out);
      });
}

/// A ring of two stages, one producer and one consumer warp, many rounds: every value once, in
/// order.
__global__ void ring(const __grid_constant__ CUtensorMap map, int boxes, std::uint32_t* sums) {
  __shared__ __align__(1024) std::uint8_t box[2][8 * kDepth];
  __shared__ std::uint64_t full[2], empty[2];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      sm90::ptx::mbarrier_init(&full[i], 1);
      sm90::ptx::mbarrier_init(&empty[i], 1);
    }
    sm90::ptx::fence_barrier_init();
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int n = 0; n < boxes; ++n) {
    const int stage = n % 2;
    const auto round = static_cast<std::uint32_t>(n / 2);
    if (threadIdx.x < 32) {
      sm90::ptx::mbarrier_wait(&empty[stage], (round & 1) ^ 1);
      if (lane == 0) {
        sm90::ptx::mbarrier_arrive_expect_tx(&full[stage], 8 * kDepth);
        sm90::ptx::tma_load_4d(box[stage], &map, &full[stage], 0, 8 * n, 0, 0);
      }
    } else {
      sm90::ptx::mbarrier_wait(&full[stage], round & 1);
      std::uint32_t sum = 0;
      for (int i = lane; i < 8 * kDepth; i += 32) sum += box[stage][i];
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      if (lane == 0) {
        sums[n] = sum;
        sm90::ptx::mbarrier_arrive(&empty[stage]);
      }
      __syncwarp();
    }
  }
}

TEST(Tma, SmokeRingOfBoxesAndZerosOutside) {
  constexpr int kRows = 1003, kBoxes = 130;  // the last boxes lie partly and wholly outside
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kRows * kDepth));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  DeviceBytes device(bytes.size()), sums(kBoxes * 4);
  device.upload(bytes.data(), bytes.size());
  const CUtensorMap map = sm90::make_tensor_map(
      {device.get(), kDepth, kRows, 1, 1, kDepth, kRows * kDepth, kRows * kDepth}, kDepth, 8);
  ring<<<1, 64>>>(map, kBoxes, static_cast<std::uint32_t*>(sums.get()));
  sm90::check(cudaDeviceSynchronize(), "running the ring");
  const auto got = download(static_cast<const std::uint32_t*>(sums.get()), kBoxes);
  for (int n = 0; n < kBoxes; ++n) {
    std::uint32_t want = 0;
    for (int i = 8 * n * kDepth; i < std::min(8 * n + 8, kRows) * kDepth; ++i) {
      want += bytes[static_cast<std::size_t>(i)];
    }
    EXPECT_EQ(got[static_cast<std::size_t>(n)], want) << "box " << n;
  }
}

}  // namespace
}  // namespace octavo::test
