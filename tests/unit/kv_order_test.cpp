// SPDX-License-Identifier: Apache-2.0
// The key order makes the scores' accumulator fragment the operand fragment of the second product.
#include <gtest/gtest.h>

#include <set>

#include "core/kv_order.h"

namespace octavo {
namespace {

TEST(KvOrder, IsAPermutationWithinEachGroupOf32) {
  for (std::int64_t group = 0; group < 4; ++group) {
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < kKvOrderGroup; ++i) {
      const std::int64_t key = key_at_position(group * kKvOrderGroup + i);
      EXPECT_EQ(key / kKvOrderGroup, group);
      seen.insert(key);
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(kKvOrderGroup));
  }
}

TEST(KvOrder, BothWaysAreInverse) {
  for (std::int64_t i = 0; i < 256; ++i) {
    EXPECT_EQ(position_of_key(key_at_position(i)), i);
    EXPECT_EQ(key_at_position(position_of_key(i)), i);
  }
  const std::int64_t far = (std::int64_t{1} << 33) + 77;
  EXPECT_EQ(position_of_key(key_at_position(far)), far);
}

// Walks the fragments as the PTX ISA lays them out. Thread c of a quad owns accumulator columns
// 8 j + 2 c + {0, 1}; packed in order of j its codes fill, four at a time, operand registers whose
// k are 4 c + {0..3} (even registers) and 16 + 4 c + {0..3} (odd ones) of each 32.
TEST(KvOrder, AccumulatorCodesFallIntoOperandPlaces) {
  for (int c = 0; c < 4; ++c) {
    std::vector<int> owned;  // keys of one row that thread c holds, in register order
    for (int j = 0; j < 16; ++j) {
      owned.push_back(8 * j + 2 * c);
      owned.push_back(8 * j + 2 * c + 1);
    }
    for (int reg = 0; reg < 8; ++reg) {  // 8 registers of 4 codes cover 128 keys
      for (int byte = 0; byte < 4; ++byte) {
        const int k = 32 * (reg / 2) + 16 * (reg % 2) + 4 * c + byte;
        EXPECT_EQ(key_at_position(k), owned[static_cast<std::size_t>(4 * reg + byte)]);
      }
    }
  }
}

}  // namespace
}  // namespace octavo
