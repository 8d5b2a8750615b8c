// SPDX-License-Identifier: Apache-2.0
// Index maths of the GPU quantiser that needs no GPU: who has which channels of a tile of Q or K,
// where they lie in shared memory, and what a warp's products with these operands come to.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/half.h"
#include "sm90/quantize/hadamard_operands.h"
#include "support/random.h"

namespace octavo::sm90 {
namespace {

template <typename T>
class Sm90Rotation : public ::testing::Test {
 protected:
  static constexpr int kHeadDim = T::value;
};

template <int kD>
struct HeadDim {
  static constexpr int value = kD;
};
using HeadDims =
    ::testing::Types<HeadDim<64>, HeadDim<96>, HeadDim<128>, HeadDim<192>, HeadDim<256>>;
TYPED_TEST_SUITE(Sm90Rotation, HeadDims);

/// Calls visit(row, channel, side, block, c of the run) for each value of a thread.
template <int kD, typename Place, typename Visit>
void for_values(int thread, const Visit& visit) {
  using Shape = TileShape<kD>;
  const Place at(thread);
  for (int group = 0; group < Shape::kGroups; ++group) {
    for (int side = 0; side < 2; ++side) {
      const int row = (2 * group + side) * Place::kRows / (2 * Shape::kGroups);
      for (int block = 0; block < Shape::kBlocks; ++block) {
        for (int c = 0; c < Shape::kRun; ++c) {
          visit(at.row_at(row), at.first_channel() + at.channel_step(side, block) + c, side, block,
                c);
        }
      }
    }
  }
}

template <int kD, typename Place>
void expect_one_owner_each() {
  std::set<std::pair<int, int>> owned;
  for (int thread = 0; thread < TileShape<kD>::kThreads; ++thread) {
    for_values<kD, Place>(thread, [&](int row, int channel, int, int, int) {
      EXPECT_TRUE(row >= 0 && row < kTileRows && channel >= 0 && channel < kD);
      EXPECT_TRUE(owned.emplace(row, channel).second) << row << ", " << channel << " again";
    });
  }
  EXPECT_EQ(owned.size(), static_cast<std::size_t>(kTileRows * kD));
}

TYPED_TEST(Sm90Rotation, EveryValueHasOneOwner) {
  constexpr int kD = TestFixture::kHeadDim;
  expect_one_owner_each<kD, ArrivalPlace<kD>>();
  expect_one_owner_each<kD, RotatedPlace<kD>>();
}

TYPED_TEST(Sm90Rotation, LanesOfARowAreAtTheSaidDistances) {
  constexpr int kD = TestFixture::kHeadDim;
  const auto rows_of = [](auto at) { return std::pair(at.first_row(), at.row_at(at.kRows - 1)); };
  const auto check = [&]<typename Place>(std::type_identity<Place>) {
    for (int thread = 0; thread < TileShape<kD>::kThreads; ++thread) {
      int leaders = Place(thread).leads();
      for (int mask = Place::kNear; mask < 2 * Place::kFar; mask += Place::kNear) {
        EXPECT_EQ(rows_of(Place(thread)), rows_of(Place(thread ^ mask)));
        leaders += Place(thread ^ mask).leads();
      }
      EXPECT_EQ(leaders, 1);
    }
  };
  check(std::type_identity<ArrivalPlace<kD>>());
  check(std::type_identity<RotatedPlace<kD>>());
}

/// Rows pass through shared memory: what a warp copies is what its threads read, unit by unit.
TYPED_TEST(Sm90Rotation, ReadersFindWhatWasCopied) {
  constexpr int kD = TestFixture::kHeadDim;
  constexpr int kThreads = TileShape<kD>::kThreads;
  std::map<int, std::tuple<int, int, int>> at_slot;  // of 16 bytes: warp, row, channel
  for (int thread = 0; thread < kThreads; ++thread) {
    const RowCopy<kD> copy(thread);
    for (int i = 0; i < copy.kUnits; ++i) {
      const int slot = (copy.first_slot() ^ copy.slot_flip(i)) + copy.slot_step(i);
      const std::tuple unit(thread / 32, copy.first_row() + copy.row_step(i),
                            copy.first_channel() + copy.channel_step(i));
      EXPECT_EQ(slot % kUnitBytes, 0);
      EXPECT_TRUE(at_slot.emplace(slot, unit).second) << slot << " again";
    }
  }
  EXPECT_EQ(at_slot.size(), static_cast<std::size_t>(kTileRows * kD / kChannels));
  EXPECT_LT(at_slot.rbegin()->first, RowCopy<kD>::kUnits * kThreads * kUnitBytes);
  for (int thread = 0; thread < kThreads; ++thread) {
    const ArrivalPlace<kD> at(thread);
    for (int i = 0; i < at.kUnits; ++i) {
      const int slot = at.slot(i), unit = slot / kUnitBytes * kUnitBytes;
      ASSERT_TRUE(at_slot.contains(unit));
      const auto [warp, row, channel] = at_slot.at(unit);
      EXPECT_EQ(warp, thread / 32);
      EXPECT_EQ(row, at.row(i));
      EXPECT_EQ(channel + slot % kUnitBytes / 2, at.channel(i));
    }
  }
}

/// Threads that one pass of shared memory serves: 128 bytes from as many different banks. At d 256
/// two passes are needed.
TYPED_TEST(Sm90Rotation, ReadersMeetInNoBank) {
  constexpr int kD = TestFixture::kHeadDim;
  using Place = ArrivalPlace<kD>;
  constexpr int kUnit = Place::kPiece * 2, kAtOnce = 128 / kUnit;
  for (int thread = 0; thread < TileShape<kD>::kThreads; thread += kAtOnce) {
    for (int i = 0; i < Place::kUnits; ++i) {
      std::map<int, int> readers;  // of a bank's four bytes
      for (int lane = 0; lane < kAtOnce; ++lane) {
        for (int byte = 0; byte < kUnit; byte += 4) {
          ++readers[(Place(thread + lane).slot(i) + byte) / 4 % 32];
        }
      }
      for (const auto& [bank, count] : readers) EXPECT_LE(count, kD == 256 ? 2 : 1) << bank;
    }
  }
}

// ---- Products

float value_of(std::uint32_t word, int half) {
  return bf16_to_float(static_cast<std::uint16_t>(word >> 16 * half));
}

/// D of a warp, mma.m16n8k16 by the PTX ISA's fragments, of exact sums.
struct Product {
  double d[16][8] = {};

  template <typename Words>
  Product(const std::vector<HadamardSigns<DType::bf16>>& a, const Words& b) {
    double left[16][16], right[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < 4; ++i) {
          left[g + 8 * (i % 2)][2 * t + half + 8 * (i / 2)] =
              value_of(a[static_cast<std::size_t>(lane)].a[i], half);
        }
        for (int i = 0; i < 2; ++i) right[2 * t + half + 8 * i][g] = value_of(b(lane, i), half);
      }
    }
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        for (int k = 0; k < 16; ++k) d[m][n] += left[m][k] * right[k][n];
      }
    }
  }
};

/// A warp's rows of small integers, rotated by way of the operands and the places, are what core
/// makes of them.
TYPED_TEST(Sm90Rotation, OperandsMakeTheRotationOfCore) {
  constexpr int kD = TestFixture::kHeadDim;
  using Shape = TileShape<kD>;
  const SignBits signs(77);
  test::Random random(5);
  std::vector<std::vector<float>> rows(kGroupRows, std::vector<float>(kD));
  for (auto& row : rows) {
    for (float& x : row) x = static_cast<float>(static_cast<int>(random.bits() % 201) - 100);
  }

  // As they arrive, negated.
  struct Lane {
    GroupWords<kD> words;
  };
  std::vector<Lane> lanes(32);
  std::vector<HadamardSigns<DType::bf16>> hadamard;
  for (int lane = 0; lane < 32; ++lane) {
    auto& words = lanes[static_cast<std::size_t>(lane)].words;
    for_values<kD, ArrivalPlace<kD>>(lane, [&](int row, int channel, int side, int block, int c) {
      if (row >= kGroupRows) return;  // the next group
      const std::uint32_t bits = float_to_bf16(rows[static_cast<std::size_t>(row)][channel]);
      std::uint32_t& word = words[side][block][c / 2];
      word = c % 2 == 0 ? bits : word | bits << 16;
    });
    SignWords<kD>(signs, ArrivalPlace<kD>(lane)).apply(words);
    hadamard.emplace_back(lane);
  }

  // Rotated.
  std::vector<std::vector<float>> rotated(kGroupRows, std::vector<float>(kD, -1e9f));
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    float x[2][Shape::kBlocks][Shape::kRun];
    for (int block = 0; block < Shape::kBlocks; ++block) {
      for (int j = 0; j < Shape::kRun / 2; ++j) {
        const Product product(hadamard, [&](int of, int i) {
          return lanes[static_cast<std::size_t>(of)].words[i][block][j];
        });
        for (int side = 0; side < 2; ++side) {  // the column, of either row g, g + 8
          x[side][block][2 * j] = static_cast<float>(product.d[g][2 * t + side]);
          x[side][block][2 * j + 1] = static_cast<float>(product.d[g + 8][2 * t + side]);
        }
      }
      for (int side = 0; side < 2; ++side) {
        for (int distance = 2; distance < Shape::kRun; distance *= 2) {
          for (int c = 0; c < Shape::kRun; ++c) {
            if ((c & distance) != 0) continue;
            float &a = x[side][block][c], &b = x[side][block][c + distance];
            std::tie(a, b) = std::pair(a + b, a - b);
          }
        }
      }
    }
    for_values<kD, RotatedPlace<kD>>(lane, [&](int row, int channel, int side, int block, int c) {
      if (row < kGroupRows) rotated[static_cast<std::size_t>(row)][channel] = x[side][block][c];
    });
  }
  for (int row = 0; row < kGroupRows; ++row) {
    std::vector<float>& expected = rows[static_cast<std::size_t>(row)];
    rotate_row(expected.data(), kD, signs, DType::bf16);
    EXPECT_EQ(rotated[static_cast<std::size_t>(row)], expected) << "row " << row;
  }
}

}  // namespace
}  // namespace octavo::sm90
