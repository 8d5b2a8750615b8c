// SPDX-License-Identifier: Apache-2.0
// What one query tile carries through the stages qk .. epilogue: the model of a thread block's
// registers and shared memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <variant>
#include <vector>

#include "core/problem.h"
#include "core/softmax_constants.h"
#include "core/tile_table.h"
#include "emulate/simd/stages.h"

namespace octavo::emulate {

/// An uninitialised array on a cache line boundary.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::int64_t n)
      : data_(
            static_cast<T*>(::operator new(static_cast<std::size_t>(n) * sizeof(T), kAlignment))) {}
  T* operator+(std::int64_t i) { return data_.get() + i; }
  T* data() { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
};

inline constexpr std::int64_t kMostCodeBytes = 2;  // a code of 16 bits

/// Values of a [rows][cols] tile of codes as the products read them.
struct CodeTile {
  CodeTile(std::int64_t rows, std::int64_t cols_)
      : value(rows * cols_), power(rows * cols_), cols(cols_) {}

  /// Reads rows x cols codes; returns whether all are finite.
  bool decode(const std::uint8_t* codes, std::int64_t rows, DType format) {
    finite = !simd::stages().decode(codes, rows * cols, format, value.data(), power.data());
    return finite;
  }
  simd::Matrix matrix() { return {value.data(), power.data(), cols}; }

  Buffer<float> value, power;
  std::int64_t cols;
  bool finite = true;
};

/// K and V of one (batch, kv head), quantised and cut into tiles of block_n keys.
struct KvHead {
  std::int64_t b = 0, h = 0, block_n = kBlockN;
  std::vector<std::uint8_t> k;              // [tiles][d][block_n]: keys run along the columns of S
  std::vector<std::uint8_t> v;              // [tiles][block_n][dv]
  std::vector<float> k_descale, v_descale;  // one a key, padded to whole tiles
};

/// O_i and LSE_i of every split of one query tile, as the epilogue leaves them.
struct SplitResults {
  std::vector<float> out;  // [splits][kBlockM][dv]
  std::vector<float> lse;  // [splits][kBlockM]
};

struct Tile {
  Tile(int d, int dv, int block_n_ = kBlockN)
      : block_n(block_n_),
        q(kBlockM, d),
        k(d, block_n),
        v(block_n, dv),
        p(kBlockM, block_n),
        q_codes(kBlockM * d * kMostCodeBytes),
        p_codes(kBlockM * block_n * kMostCodeBytes),
        s(kBlockM * block_n),
        weights(kBlockM * block_n),
        acc(kBlockM * dv),
        out(kBlockM * dv),
        acc_sum(kBlockM * simd::kLanes),
        sum(kBlockM * simd::kLanes) {}

  const std::int64_t block_n;  // keys of a step

  // Of the query tile
  std::int64_t b = 0, h = 0, m = 0;  // first row m
  std::int64_t rows = 0;
  float q_descale[kBlockM];
  float shift[kBlockM];  // q . mean(K): what smoothing took from the row's scores

  // Of the online softmax, one a row
  float row_m[kBlockM];     // running maximum of t, in base 2
  float factor[kBlockM];    // t = s * factor
  float alpha[kBlockM];     // 2^(m_old - m_new) of this step
  float unit[kBlockM];      // descale of this step's P V
  float acc_unit[kBlockM];  // descale of what is in acc
  float pending[kBlockM];   // product of alpha since the last promotion
  float lse[kBlockM];       // natural log of the sum of exponentials, after the epilogue
  int steps_in_acc = 0;     // key tiles added since the last promotion
  float zero = 0;           // what stands for 0 in s: core/int8.h, kInt8Zero
  bool sums_codes = true;   // the row sum comes out of P8 and a column of ones beside V
  bool finite = true;       // nothing seen so far is NaN or infinite

  CodeTile q, k, v, p;
  Buffer<std::uint8_t> q_codes, p_codes;
  Buffer<float> s;        // scores
  Buffer<float> weights;  // p before the cast
  Buffer<float> acc;      // tensor-core accumulator of P V
  Buffer<float> out;      // promoted FP32 sum; O after the epilogue
  Buffer<float> acc_sum;  // row sums of P8, accumulated and promoted like P V; lane 0 counts
  Buffer<float> sum;      // row sums: lane 0 of those, or 8 residues of FP32 weights
  SplitResults splits;    // empty unless the call splits its keys
};

/// Columns of the step at key n that row i of the tile sees, as [begin, end) within the step.
inline KeyRange columns_of(const Mask& mask, const Tile& tile, std::int64_t i, std::int64_t n) {
  const KeyRange keys = std::visit([&](const auto& x) { return x.row(tile.m + i); }, mask);
  return {std::clamp<std::int64_t>(keys.begin - n, 0, tile.block_n),
          std::clamp<std::int64_t>(keys.end - n, 0, tile.block_n)};
}

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

}  // namespace octavo::emulate
