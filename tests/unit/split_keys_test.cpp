// SPDX-License-Identifier: Apache-2.0
// Split keys (num_splits): the ranges, the merge of their results, and what both must leave alone.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/split.h"
#include "emulate/merge.h"
#include "support/call.h"
#include "support/compare.h"
#include "support/distributions.h"
#include "support/recipes.h"

namespace octavo::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- Ranges

static_assert(split_range(300, 2, 0) == std::pair{0, 2});
static_assert(split_range(300, 2, 1) == std::pair{2, 3});

template <typename Index>
void expect_cover(Index keys, Index num_splits) {
  const Index tiles = (keys + kBlockN - 1) / kBlockN;
  Index next = 0;
  for (Index split = 0; split < num_splits; ++split) {
    const auto [first, last] = split_range(keys, num_splits, split);
    ASSERT_EQ(first, next) << keys << " keys, split " << split << " of " << num_splits;
    ASSERT_GE(last, first);
    ASSERT_LE(last - first, (tiles + num_splits - 1) / num_splits);
    next = last;
  }
  EXPECT_EQ(next, tiles) << keys << " keys, " << num_splits << " splits";
}

TEST(SplitRange, EveryTileIsInOneSplit) {
  for (int num_splits = 1; num_splits <= kMaxSplits; ++num_splits) {
    for (const int keys : {0, 1, 127, 128, 129, 383, 385, 128 * 7, 128 * 63 + 1, 128 * 64, 99999}) {
      expect_cover<int>(keys, num_splits);
      expect_cover<std::int64_t>(keys, num_splits);
    }
  }
}

TEST(SplitRange, SplitsPastTheTilesAreEmpty) {
  EXPECT_EQ(split_range(200, 7, 1), (std::pair{1, 2}));
  for (int split = 2; split < 7; ++split) EXPECT_EQ(split_range(200, 7, split), (std::pair{2, 2}));
  // 5 tiles in 4 splits: 2, 2, 1 and none.
  EXPECT_EQ(split_range(600, 4, 2), (std::pair{4, 5}));
  EXPECT_EQ(split_range(600, 4, 3), (std::pair{5, 5}));
  EXPECT_EQ(split_range(0, 3, 0), (std::pair{0, 0}));
}

// ---- The merge of one row

struct Part {
  float out, lse;
};
struct Row {
  float out, lse;
};

/// Row 0 of a tile whose every channel is `out`.
Row merge_row(const std::vector<Part>& parts) {
  emulate::Tile tile(64, 64);
  tile.rows = 1;
  const auto splits = static_cast<std::int64_t>(parts.size());
  emulate::allocate(tile.splits, splits, 64);
  for (std::int64_t i = 0; i < splits; ++i) {
    const Part& part = parts[static_cast<std::size_t>(i)];
    std::fill(tile.out.data(), tile.out + 64, part.out);
    tile.lse[0] = part.lse;
    emulate::keep(tile.splits, i, tile);
  }
  emulate::merge(tile, tile.splits);
  return {*tile.out.data(), tile.lse[0]};
}

TEST(MergeSplits, WeighsByTheExponentialOfTheLse) {
  const Row equal = merge_row({{1, 5}, {4, 5}});
  EXPECT_FLOAT_EQ(equal.out, 2.5f);
  EXPECT_FLOAT_EQ(equal.lse, 5 + std::log(2.0f));
  const Row unequal = merge_row({{1, std::log(3.0f)}, {5, 0}});
  EXPECT_FLOAT_EQ(unequal.out, 2.0f);
  EXPECT_FLOAT_EQ(unequal.lse, std::log(4.0f));
  EXPECT_EQ(merge_row({{3, 1000}, {7, -1000}}).out, 3);
  EXPECT_EQ(merge_row({{3, -1000}, {7, 1000}}).lse, 1000);
}

TEST(MergeSplits, OneSplitThatSeesKeysIsKeptToTheBit) {
  for (const std::vector<Part>& parts : std::vector<std::vector<Part>>{
           {{0.1f, 0.3f}}, {{0, -kInfinity}, {0.1f, 0.3f}}, {{0.1f, 0.3f}, {0, -kInfinity}}}) {
    const Row row = merge_row(parts);
    EXPECT_EQ(row.out, 0.1f);
    EXPECT_EQ(row.lse, 0.3f);
  }
}

TEST(MergeSplits, SplitWithoutKeysAddsNothingWhateverItHolds) {
  const Row row = merge_row({{kNan, -kInfinity}, {2, 1}, {kInfinity, -kInfinity}});
  EXPECT_EQ(row.out, 2);
  EXPECT_EQ(row.lse, 1);
  const Row none = merge_row({{kNan, -kInfinity}, {0, -kInfinity}});
  EXPECT_EQ(none.out, 0);
  EXPECT_EQ(none.lse, -kInfinity);
}

TEST(MergeSplits, NanOfOneSplitIsTheRows) {
  for (const float other : {3.0f, 1000.0f, -kInfinity}) {
    for (const bool first : {false, true}) {
      const Part bad{kNan, kNan}, good{2, other};
      const Row row = first ? merge_row({bad, good}) : merge_row({good, bad});
      EXPECT_TRUE(std::isnan(row.out)) << other;
      EXPECT_TRUE(std::isnan(row.lse)) << other;
    }
  }
  const Row row = merge_row({{kNan, 0}, {2, 1}});  // of one channel of V
  EXPECT_TRUE(std::isnan(row.out));
  EXPECT_FLOAT_EQ(row.lse, 1 + std::log1p(std::exp(-1.0f)));
}

// ---- Whole calls

/// As for halves merged by the caller (cases_causality_test.cpp).
constexpr Bounds kSplitBounds = {0.03, 0.048};
constexpr double kLseTolerance = 0.05;        // measured: 0.043
constexpr std::array kSplits = {1, 2, 3, 7};  // of 5 key tiles: 7 leave empty ones

void expect_agrees(const Result& got, const Result& want, const Bounds& bounds = kSplitBounds) {
  EXPECT_TRUE(agrees(got.out, want.out, bounds));
  EXPECT_TRUE(lse_agrees(got.lse, want.lse, kLseTolerance));
}

void expect_same_bits(const Result& got, const Result& want) {
  EXPECT_TRUE(identical(got.out, want.out));
  EXPECT_TRUE(identical(got.lse, want.lse));
}

/// 3 batch entries of 5, 0 and 3 key tiles.
AttentionParams ragged(Inputs& x) {
  AttentionParams params = x.params();
  params.key_lengths = {600, 0, 333};
  return params;
}

Inputs ragged_inputs(std::uint64_t seed) {
  return normal_inputs({.b = 3, .sq = 70, .sk = 600, .hq = 4, .hkv = 2, .d = 64, .dv = 64}, seed);
}

TEST(SplitKeys, EveryMaskIsWithinTheErrorOfFp8) {
  Inputs x = ragged_inputs(201);
  for (const MaskSpec& mask : {MaskSpec::none(), MaskSpec::causal(), MaskSpec::window(150, 0),
                               MaskSpec::window(200, 40)}) {
    AttentionParams params = ragged(x);
    params.mask = mask;
    const Result want = reference(params);
    for (const int splits : kSplits) {
      SCOPED_TRACE(testing::Message()
                   << "window " << mask.left << ", " << mask.right << ", " << splits << " splits");
      params.num_splits = splits;
      expect_agrees(emulate(params), want);
    }
  }
}

TEST(SplitKeys, EveryRecipeAndPathIsWithinTheErrorOfFp8) {
  Inputs x = normal_inputs({.sq = 70, .sk = 600, .hq = 2, .hkv = 1, .d = 64, .dv = 64}, 202);
  const Result want = reference(x.params());
  for_each_recipe([&](const Recipe& recipe, SoftmaxPath path) {
    AttentionParams params = x.params(recipe);
    params.softmax = path;
    for (const int splits : {2, 5}) {
      SCOPED_TRACE(splits);
      params.num_splits = splits;
      expect_agrees(emulate(params), want, normal_bounds(recipe));
    }
  });
}

/// The mean is that of all keys, and each split's LSE that of the true scores.
TEST(SplitKeys, SmoothingLeavesTheLseOfTheTrueScores) {
  Inputs x = normal_inputs({.sq = 70, .sk = 600}, 203);
  add_channel_offsets(x, 10, 50, 204);
  AttentionParams params = x.params(Recipe::standard());
  const Result want = reference(params);
  for (const int splits : kSplits) {
    SCOPED_TRACE(splits);
    params.num_splits = splits;
    expect_agrees(emulate(params), want);
  }
}

TEST(SplitKeys, SoftcapAndPromotionAreThoseOfTheCall) {
  Inputs x = normal_inputs({.sq = 70, .sk = 600}, 205);
  for (const int promote : {0, 2}) {
    AttentionParams params = x.params();
    params.softcap = 2.0f;
    params.promote_every = promote;
    params.num_splits = 2;
    expect_agrees(emulate(params), reference(params), {0.03, 0.07});
  }
}

TEST(SplitKeys, RowsWhoseKeysLieInOneSplitKeepTheirBits) {
  Inputs x = normal_inputs({.sq = 70, .sk = 128}, 206);
  AttentionParams params = x.params();
  const Result want = emulate(params);
  for (const int splits : {1, 2, 64}) {
    SCOPED_TRACE(splits);
    params.num_splits = splits;
    expect_same_bits(emulate(params), want);
  }
}

TEST(SplitKeys, EverySplitOfMoreThanTilesGivesTheBitsOfOneATile) {
  Inputs x = ragged_inputs(207);
  AttentionParams params = ragged(x);
  params.mask = MaskSpec::causal();
  params.num_splits = 5;
  const Result want = emulate(params);
  params.num_splits = 64;
  expect_same_bits(emulate(params), want);
}

/// 333 of 600 keys: cut after 256 of them, not after 384.
TEST(SplitKeys, CutsFollowTheLengthOfTheBatchEntry) {
  Inputs x = normal_inputs({.sq = 70, .sk = 600, .d = 64, .dv = 64}, 213);
  AttentionParams params = x.params();
  params.num_splits = 2;
  params.key_lengths = {333};
  const Result got = emulate(params);
  params.key_lengths = {};
  params.k.shape[1] = params.v.shape[1] = 333;
  expect_same_bits(got, emulate(params));
}

TEST(SplitKeys, NumberOfThreadsAndOutputTypeLeaveTheBits) {
  Inputs x = ragged_inputs(208);
  AttentionParams params = ragged(x);
  params.num_splits = 3;
  const Result two = emulate(params);
  const Result rounded = emulate(params, DType::bf16);
  params.threads = 1;
  EXPECT_TRUE(identical(emulate(params).out, two.out));
  const std::vector<float> values = two.out.values();
  EXPECT_TRUE(identical(rounded.out, Tensor(DType::bf16, two.out.shape(), values))) << "once";
  params.lse = {};
  Tensor out(DType::f32, two.out.shape());
  params.out = out.view();
  params.engine = "emulate";
  attention_forward(params);
  EXPECT_TRUE(identical(out, two.out)) << "without an LSE of the caller";
}

TEST(SplitKeys, ReferenceComputesTheSameFunction) {
  Inputs x = ragged_inputs(209);
  AttentionParams params = ragged(x);
  const Result want = reference(params);
  params.num_splits = 3;
  expect_same_bits(reference(params), want);
}

/// The content of later tokens; their number moves the ranges.
TEST(SplitKeys, StrictRecipeStaysBlindToLaterTokens) {
  Inputs x = normal_inputs({.sq = 384, .sk = 384, .d = 64, .dv = 64}, 210, DType::f32);
  Inputs later = x;
  scale_rows(later.k, 201, 384, 1000.0f);
  scale_rows(later.v, 201, 384, 1000.0f);
  AttentionParams a = x.params(Recipe::strict_causal()), b = later.params(Recipe::strict_causal());
  a.mask = b.mask = MaskSpec::causal();
  a.num_splits = b.num_splits = 3;
  EXPECT_TRUE(identical(rows_of(emulate(b).out, 0, 201), rows_of(emulate(a).out, 0, 201)));
}

// ---- NaN

struct NanCase {
  MaskSpec mask;
  int splits;
  std::int64_t first, last;  // rows that NaN reaches
};

/// NaN at key 130 of 270 (key tile 1), channel 5, against 0 there: NaN in rows [first, last) and
/// nowhere else, where all bits stay.
void expect_nan(Tensor Inputs::*operand, const NanCase& what) {
  SCOPED_TRACE(testing::Message() << what.splits << " splits, rows from " << what.first);
  Inputs with = normal_inputs({.sq = 270, .sk = 270, .d = 64, .dv = 64}, 211), without = with;
  (with.*operand).set(with.k.at(0, 130, 0, 5), kNan);
  (without.*operand).set(with.k.at(0, 130, 0, 5), 0);
  const bool of_v = operand == &Inputs::v;
  AttentionParams a = with.params(Recipe::block()), b = without.params(Recipe::block());
  a.mask = b.mask = what.mask;
  a.num_splits = b.num_splits = what.splits;
  const Result got = emulate(a), want = emulate(b);
  for (std::int64_t i = 0; i < 270; ++i) {
    const bool hit = i >= what.first && i < what.last;
    for (std::int64_t c = 0; c < 64; ++c) {
      const float out = got.out.get(i * 64 + c);
      const bool nan = hit && (!of_v || c == 5);
      ASSERT_TRUE(nan ? std::isnan(out) : out == want.out.get(i * 64 + c)) << i << ", " << c;
    }
    const float lse = got.lse.get(i);
    ASSERT_TRUE(hit && !of_v ? std::isnan(lse) : lse == want.lse.get(i)) << i;
  }
}

TEST(SplitKeys, NanOfAKeyReachesTheRowsThatSeeIt) {
  for (const int splits : {2, 3, 7}) {
    expect_nan(&Inputs::k, {MaskSpec::causal(), splits, 130, 270});
    expect_nan(&Inputs::k, {MaskSpec::window(20, 0), splits, 130, 151});
    expect_nan(&Inputs::k, {MaskSpec::none(), splits, 0, 270});
  }
}

/// Rows 64 to 107 visit key tile 1 and see none of its keys: NaN where they see others of its
/// split.
TEST(SplitKeys, NanOfAValueReachesRowsThatSeeKeysOfItsSplit) {
  expect_nan(&Inputs::v, {MaskSpec::window(0, 20), 1, 64, 256});
  expect_nan(&Inputs::v, {MaskSpec::window(0, 20), 2, 64, 256});
  expect_nan(&Inputs::v, {MaskSpec::window(0, 20), 3, 108, 256});
  expect_nan(&Inputs::v, {MaskSpec::causal(), 3, 128, 270});
}

// ---- Against calls on the ranges themselves

/// Operands that are quantised already, K smoothed; larger scores in the second range: a merge that
/// weighs wrongly shows.
class SplitCalls : public testing::Test {
 protected:
  static constexpr std::int64_t kQueries = 70, kKeys = 384, kCut = 256, kDim = 64;

  SplitCalls() {
    Inputs x = normal_inputs({.sq = kQueries, .sk = kKeys, .d = kDim, .dv = kDim}, 212);
    scale_rows(x.k, kCut, kKeys, 2.0f);
    scale_rows(x.v, kCut, kKeys, 0.5f);
    codes_ = quantised(x.params(), parse_recipe("block+smooth"));
  }

  /// Keys [first, last), whole key tiles.
  Result on(std::int64_t first, std::int64_t last) {
    AttentionParams params = codes_.params();
    for (TensorView* x : {&params.k, &params.v}) {
      x->data = row_pointer(*x, 0, first, 0);
      x->shape[1] = last - first;
    }
    for (TensorView* x : {&params.k_descale, &params.v_descale}) {
      x->data = static_cast<float*>(x->data) + first / kBlockN;
      x->shape[2] = (last - first) / kBlockN;
    }
    return emulate(params);
  }

  /// The two results with their own LSEs, or with each other's.
  static Result merged(const Result& a, const Result& b, bool swap_lse) {
    Result whole = a;
    for (std::int64_t m = 0; m < kQueries; m += kBlockM) {
      emulate::Tile tile(kDim, kDim);
      tile.rows = std::min<std::int64_t>(kBlockM, kQueries - m);
      emulate::allocate(tile.splits, 2, kDim);
      for (const int split : {0, 1}) {
        const Result& from = split == 0 ? a : b;
        const Result& lse_from = (split == 0) != swap_lse ? a : b;
        for (std::int64_t i = 0; i < tile.rows * kDim; ++i) {
          *(tile.out + i) = from.out.get(m * kDim + i);
        }
        for (std::int64_t i = 0; i < tile.rows; ++i) tile.lse[i] = lse_from.lse.get(m + i);
        emulate::keep(tile.splits, split, tile);
      }
      emulate::merge(tile, tile.splits);
      for (std::int64_t i = 0; i < tile.rows * kDim; ++i) {
        whole.out.set(m * kDim + i, *(tile.out + i));
      }
      for (std::int64_t i = 0; i < tile.rows; ++i) whole.lse.set(m + i, tile.lse[i]);
    }
    return whole;
  }

  Inputs codes_;
};

TEST_F(SplitCalls, OptionGivesTheBitsOfCallsOnTheRanges) {
  AttentionParams params = codes_.params();
  params.num_splits = 2;
  expect_same_bits(emulate(params), merged(on(0, kCut), on(kCut, kKeys), false));
}

/// Only P is rounded: see WeightsInFullPrecisionFail (mutation_test.cpp).
constexpr Bounds kWeightsOnly = {0.01, 0.03};

TEST_F(SplitCalls, SwappedLsesFail) {
  const Result want = reference(codes_.params());
  const Result a = on(0, kCut), b = on(kCut, kKeys);
  expect_agrees(merged(a, b, false), want, kWeightsOnly);
  EXPECT_FALSE(agrees(merged(a, b, true).out, want.out, kWeightsOnly));
}

TEST_F(SplitCalls, MissingSplitFails) {
  const Result want = reference(codes_.params());
  for (const Result& part : {on(0, kCut), on(kCut, kKeys)}) {
    EXPECT_FALSE(agrees(part.out, want.out, kWeightsOnly));
    EXPECT_FALSE(lse_agrees(part.lse, want.lse, kLseTolerance));
  }
}

}  // namespace
}  // namespace octavo::test
