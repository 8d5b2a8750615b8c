// SPDX-License-Identifier: Apache-2.0
// Mask types against the definition, element by element; block ranges against a search.
#include <gtest/gtest.h>

#include <limits>

#include "core/mask.h"

namespace octavo {
namespace {

bool visible(const MaskSpec& spec, std::int64_t i, std::int64_t j, std::int64_t sq,
             std::int64_t sk) {
  const std::int64_t position = i + sk - sq;
  if (j < 0 || j >= sk) return false;
  if (spec.right >= 0 && j - position > spec.right) return false;
  return spec.left < 0 || position - j <= spec.left;
}

struct Shape {
  std::int64_t sq, sk;
};

std::vector<MaskSpec> specs() {
  return {MaskSpec::none(),        MaskSpec::causal(),       MaskSpec::window(5, 3),
          MaskSpec::window(0, 0),  MaskSpec::window(130, 0), MaskSpec::window(-1, 17),
          MaskSpec::window(40, -1)};
}

class MaskTest : public ::testing::TestWithParam<Shape> {};

TEST_P(MaskTest, RowsEqualTheDefinition) {
  const auto [sq, sk] = GetParam();
  for (const MaskSpec& spec : specs()) {
    const Mask mask = make_mask(spec, sq, sk);
    for (std::int64_t i = 0; i < sq; ++i) {
      const KeyRange keys = std::visit([i](const auto& m) { return m.row(i); }, mask);
      for (std::int64_t j = 0; j < sk; ++j) {
        ASSERT_EQ(j >= keys.begin && j < keys.end, visible(spec, i, j, sq, sk))
            << "left " << spec.left << " right " << spec.right << " row " << i << " key " << j;
      }
    }
  }
}

TEST_P(MaskTest, BlockRangesHoldExactlyTheBlocksWithVisibleKeys) {
  const auto [sq, sk] = GetParam();
  constexpr std::int64_t kRows = 16, kCols = 8;
  for (const MaskSpec& spec : specs()) {
    const Mask mask = make_mask(spec, sq, sk);
    for (std::int64_t m = 0; m < sq; m += kRows) {
      const auto [first, last] =
          std::visit([&](const auto& x) { return block_range(x, m, kRows, kCols); }, mask);
      const auto [first_full, last_full] =
          std::visit([&](const auto& x) { return full_block_range(x, m, kRows, kCols); }, mask);
      for (std::int64_t n = 0; n * kCols < sk; ++n) {
        bool any = false, all = true;
        for (std::int64_t i = m; i < std::min(m + kRows, sq); ++i) {
          for (std::int64_t j = n * kCols; j < (n + 1) * kCols; ++j) {
            const bool sees = visible(spec, i, j, sq, sk);
            any |= sees;
            all &= sees;
          }
        }
        ASSERT_TRUE(!any || (n >= first && n < last)) << "m " << m << " block " << n;
        ASSERT_EQ(n >= first_full && n < last_full, all) << "m " << m << " block " << n;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, MaskTest,
                         ::testing::Values(Shape{1, 1}, Shape{40, 40}, Shape{17, 50}, Shape{50, 17},
                                           Shape{1, 60}, Shape{60, 1}, Shape{64, 64},
                                           Shape{33, 0}));

TEST(MaskTest, TypesFollowTheSpecification) {
  EXPECT_TRUE(std::holds_alternative<NoMask>(make_mask(MaskSpec::none(), 4, 4)));
  EXPECT_TRUE(std::holds_alternative<CausalMask>(make_mask(MaskSpec::causal(), 4, 4)));
  EXPECT_TRUE(std::holds_alternative<WindowMask>(make_mask(MaskSpec::window(3, 0), 4, 4)));
}

TEST(MaskTest, WindowsOfAnySizeDoNotOverflow) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const WindowMask mask{10, 1000, huge, huge};
  for (std::int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(mask.row(i).begin, 0);
    EXPECT_EQ(mask.row(i).end, 1000);
  }
}

}  // namespace
}  // namespace octavo
