// SPDX-License-Identifier: Apache-2.0
// Stage `rotate`: x <- x D H (core/hadamard.h), on tensor cores as far as they go.
//
// Words of neighbours are operand B of a product as they come from memory; what it leaves has
// neighbours in one thread, and all other distances between its registers (hadamard_operands.h).
#pragma once

#include "sm90/ptx/convert.cuh"
#include "sm90/ptx/mma.cuh"
#include "sm90/quantize/hadamard_operands.h"
#include "sm90/quantize/load.cuh"

namespace octavo::sm90 {

/// FP32 values of a thread's rows of Q or K, as its place says.
template <int kD>
struct Rows {
  using Shape = TileShape<kD>;
  float x[Shape::kGroups][2][Shape::kBlocks][Shape::kRun];

  /// All values of each row.
  template <typename Place>
  __device__ auto& rows() {
    constexpr int kCount = Shape::kGroups * 2 * Shape::kBlocks * Shape::kRun;
    return reinterpret_cast<float(&)[Place::kRows][kCount / Place::kRows]>(x);
  }
};

/// The same of one group.
template <int kD>
using GroupValues = float[2][TileShape<kD>::kBlocks][TileShape<kD>::kRun];

__device__ inline void butterfly(float& a, float& b) {
  const float sum = __fadd_rn(a, b);
  b = __fsub_rn(a, b);
  a = sum;
}

/// What a product leaves of both rows of a thread.
template <int kRun>
__device__ void put(const float (&d)[4], int j, float (&row)[kRun], float (&next_row)[kRun]) {
  row[2 * j] = d[0], next_row[2 * j] = d[1];
  row[2 * j + 1] = d[2], next_row[2 * j + 1] = d[3];
}

/// The distances that products leave, of a run.
template <int kRun>
__device__ void add_between_registers(float (&run)[kRun]) {
#pragma unroll
  for (int distance = 2; distance < kRun; distance *= 2) {
#pragma unroll
    for (int c = 0; c < kRun; ++c) {
      if ((c & distance) == 0) butterfly(run[c], run[c + distance]);
    }
  }
}
template <int kD>
__device__ void add_between_registers_of_group(GroupValues<kD>& x) {
#pragma unroll
  for (int i = 0; i < 2 * TileShape<kD>::kBlocks; ++i) add_between_registers(x[i % 2][i / 2]);
}

/// One group of rows, 16-bit numbers with their signs.
template <int kD, DType kType>
__device__ void rotate_group(const HadamardSigns<kType>& hadamard, const GroupWords<kD>& words,
                             GroupValues<kD>& x) {
#pragma unroll
  for (int block = 0; block < TileShape<kD>::kBlocks; ++block) {
#pragma unroll
    for (int j = 0; j < TileShape<kD>::kRun / 2; ++j) {
      float d[4];
      ptx::mma_16x8x16<kType>(d, hadamard.a, words[0][block][j], words[1][block][j]);
      put(d, j, x[0][block], x[1][block]);
    }
  }
  add_between_registers_of_group<kD>(x);
}

/// Two FP32 numbers in parts of 16 bits. Three would leave nothing out, but rows of 256 channels
/// would spill.
struct Parts {
  static constexpr int kCount = 2;
  std::uint32_t word[kCount];

  __device__ Parts(float a, float b, std::uint32_t signs) {
#pragma unroll
    for (std::uint32_t& part : word) {
      part = ptx::cvt_bf16x2(a, b);
      a = rest(a, __uint_as_float(part << 16)), b = rest(b, __uint_as_float(part & 0xffff0000u));
      part ^= signs;
    }
  }

 private:
  static __device__ float rest(float x, float part) {
    return isfinite(part) ? __fsub_rn(x, part) : 0.0f;
  }
};

/// The product of FP32 numbers, part by part.
__device__ inline void multiply_parts(const HadamardSigns<DType::bf16>& hadamard, const Parts& b0,
                                      const Parts& b1, float (&sum)[4]) {
  ptx::mma_16x8x16<DType::bf16>(sum, hadamard.a, b0.word[0], b1.word[0]);
#pragma unroll
  for (int part = 1; part < Parts::kCount; ++part) {
    float d[4];
    ptx::mma_16x8x16<DType::bf16>(d, hadamard.a, b0.word[part], b1.word[part]);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = __fadd_rn(sum[i], d[i]);
  }
}

/// One group of rows in FP32, in place.
template <int kD>
__device__ void rotate_group(const HadamardSigns<DType::bf16>& hadamard, const SignWords<kD>& signs,
                             GroupValues<kD>& x) {
  using Shape = TileShape<kD>;
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int j = 0; j < Shape::kRun / 2; ++j) {
      const auto parts = [&](int side) {
        const int word = (side * Shape::kBlocks + block) * (Shape::kRun / 2) + j;
        return Parts(x[side][block][2 * j], x[side][block][2 * j + 1], signs.word(word));
      };
      float sum[4];
      multiply_parts(hadamard, parts(0), parts(1), sum);
      put(sum, j, x[0][block], x[1][block]);
    }
  }
  add_between_registers_of_group<kD>(x);
}

/// FP32 values in 16 bits.
template <int kD, DType kType>
__device__ void pack(const GroupValues<kD>& x, GroupWords<kD>& words) {
#pragma unroll
  for (int i = 0; i < 2 * TileShape<kD>::kBlocks; ++i) {
    const float(&run)[TileShape<kD>::kRun] = x[i % 2][i / 2];
#pragma unroll
    for (int j = 0; j < TileShape<kD>::kRun / 2; ++j) {
      words[i % 2][i / 2][j] = kType == DType::f16 ? ptx::cvt_f16x2(run[2 * j], run[2 * j + 1])
                                                   : ptx::cvt_bf16x2(run[2 * j], run[2 * j + 1]);
    }
  }
}

}  // namespace octavo::sm90
