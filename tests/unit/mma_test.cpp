// SPDX-License-Identifier: Apache-2.0
// The accumulator model against what an H200's tensor cores answered, bit by bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "emulate/mma.h"

namespace octavo::emulate {
namespace {

constexpr std::int64_t kRows = 16, kCols = 32, kDepth = 128;

struct Record {
  std::uint32_t format, number;
  std::uint8_t a[kRows][kDepth];
  std::uint8_t b[kCols][kDepth];
  float c[kRows][kCols];
  float d[2][2][kRows][kCols];  // [one or four instructions][from zero or from c]
};
static_assert(sizeof(Record) == 8 + 2048 + 4096 + 2048 + 8192);

std::vector<Record> records() {
  std::ifstream file(OCTAVO_TEST_DATA "/wgmma_h200.bin", std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<Record> out(bytes.size() / sizeof(Record));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(Record));
  return out;
}

struct Operands {
  Operands() : a(kRows, kDepth), b(kDepth, kCols) {}
  CodeTile a, b;
};

void load(const Record& record, Operands& x) {
  std::vector<std::uint8_t> transposed(static_cast<std::size_t>(kDepth * kCols));
  for (std::int64_t j = 0; j < kCols; ++j) {
    for (std::int64_t k = 0; k < kDepth; ++k) {
      transposed[static_cast<std::size_t>(k * kCols + j)] = record.b[j][k];
    }
  }
  x.a.decode(&record.a[0][0], kRows, DType::f8_e4m3);
  x.b.decode(transposed.data(), kDepth, record.format == 1 ? DType::f8_e5m2 : DType::f8_e4m3);
}

/// How many of a record's outputs `model` gets wrong, over all four runs of the hardware.
int wrong_outputs(const Record& record, Accumulator model) {
  Operands x;
  load(record, x);
  int wrong = 0;
  for (int steps = 0; steps < 2; ++steps) {
    for (int from_c = 0; from_c < 2; ++from_c) {
      float c[kRows][kCols] = {};
      if (from_c) std::memcpy(c, record.c, sizeof c);
      mma(model, x.a.matrix(), x.b.matrix(), &c[0][0], kCols, kRows, kCols, steps ? 128 : 32, true);
      for (std::int64_t i = 0; i < kRows * kCols; ++i) {
        wrong += (&c[0][0])[i] != (&record.d[steps][from_c][0][0])[i];
      }
    }
  }
  return wrong;
}

TEST(HopperAccumulator, EqualsTheHardwareBitByBit) {
  const std::vector<Record> all = records();
  ASSERT_GE(all.size(), 15u);
  for (const Record& record : all) {
    EXPECT_EQ(wrong_outputs(record, Accumulator::hopper), 0)
        << "format " << record.format << " case " << record.number;
  }
}

// The comparison above can fail: plain FP32 does not pass it.
TEST(HopperAccumulator, Fp32DoesNotEqualTheHardware) {
  int wrong = 0;
  for (const Record& record : records()) wrong += wrong_outputs(record, Accumulator::fp32);
  EXPECT_GT(wrong, 5000);
}

TEST(HopperAccumulator, LosesAThousandThreeQuarterUnits) {
  // 2^16 + 1000 products of 0.75 units of its last kept place, 2^3: nothing is added.
  CodeTile a(1, 32), b(32, 8);
  std::vector<std::uint8_t> one(32, 0), column(32 * 8, 0);
  one[0] = E4m3::encode(1.5f);  // 1.5 x 4 = 0.75 x 2^3
  for (int j = 0; j < 8; ++j) column[static_cast<std::size_t>(j)] = E4m3::encode(4.0f);
  a.decode(one.data(), 1, DType::f8_e4m3);
  b.decode(column.data(), 32, DType::f8_e4m3);
  float c[8];
  std::fill(c, c + 8, 65536.0f);
  for (int i = 0; i < 1000; ++i)
    mma(Accumulator::hopper, a.matrix(), b.matrix(), c, 8, 1, 8, 32, true);
  EXPECT_EQ(c[0], 65536.0f);
  mma(Accumulator::fp32, a.matrix(), b.matrix(), c, 8, 1, 8, 32, true);
  EXPECT_EQ(c[0], 65542.0f);
}

TEST(Mma, NanReachesItsRowAndColumnOnly) {
  for (const Accumulator model : {Accumulator::hopper, Accumulator::fp32}) {
    CodeTile a(3, 32), b(32, 8);
    std::vector<std::uint8_t> rows(3 * 32, E4m3::encode(0.5f)), cols(32 * 8, E4m3::encode(2.0f));
    rows[1 * 32 + 5] = E4m3::kNan;  // row 1
    cols[7 * 8 + 3] = E4m3::kNan;   // column 3
    EXPECT_FALSE(a.decode(rows.data(), 3, DType::f8_e4m3));
    EXPECT_FALSE(b.decode(cols.data(), 32, DType::f8_e4m3));
    float c[3][8] = {};
    mma(model, a.matrix(), b.matrix(), &c[0][0], 8, 3, 8, 32, false);
    for (int r = 0; r < 3; ++r) {
      for (int j = 0; j < 8; ++j) {
        if (r == 1 || j == 3) {
          EXPECT_TRUE(std::isnan(c[r][j])) << r << ' ' << j;
        } else {
          EXPECT_EQ(c[r][j], 32.0f) << r << ' ' << j;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::emulate
