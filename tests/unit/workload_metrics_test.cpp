// SPDX-License-Identifier: Apache-2.0
// Figures of a comparison, against values worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "octavo/error.h"
#include "workload/metrics.h"
#include "workload/tensor.h"

namespace octavo::workload {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Metrics compare_rows(std::vector<float> got, std::vector<float> want, std::int64_t columns) {
  const auto rows = static_cast<std::int64_t>(got.size()) / columns;
  return compare(contiguous(got.data(), DType::f32, {rows, columns}),
                 contiguous(want.data(), DType::f32, {rows, columns}));
}

TEST(Metrics, EqualTensorsHaveNoError) {
  const Metrics m = compare_rows({1, -2, 3, 4}, {1, -2, 3, 4}, 2);
  EXPECT_EQ(m.count, 4);
  EXPECT_EQ(m.relative_l2, 0);
  EXPECT_EQ(m.rmse, 0);
  EXPECT_EQ(m.max_abs, 0);
  EXPECT_DOUBLE_EQ(m.cosine, 1);
  EXPECT_EQ(m.snr_db, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(m.masks_agree);
}

TEST(Metrics, WorkedExample) {
  // error (1, 0, 0, -2), |error|^2 = 5; |want|^2 = 9 + 16 = 25; dot = 12 + 8 = 20; |got|^2 = 20.
  const Metrics m = compare_rows({4, 0, 0, 2}, {3, 0, 0, 4}, 2);
  EXPECT_DOUBLE_EQ(m.relative_l2, std::sqrt(5.0) / 5);
  EXPECT_DOUBLE_EQ(m.rmse, std::sqrt(5.0 / 4));
  EXPECT_DOUBLE_EQ(m.max_abs, 2);
  EXPECT_DOUBLE_EQ(m.cosine, 20 / (std::sqrt(20.0) * 5));
  EXPECT_DOUBLE_EQ(m.snr_db, 10 * std::log10(5.0));
  EXPECT_DOUBLE_EQ(m.zeros, 0.5);
  EXPECT_DOUBLE_EQ(m.zeros_want, 0.5);
  EXPECT_DOUBLE_EQ(m.worst_row_cosine, 1);
}

TEST(Metrics, TheWorstRowIsFound) {
  // Long rows agree; the short second one points elsewhere and hides in the sums.
  const Metrics m = compare_rows({1000, 0, 0, 1, 1000, 0}, {1000, 0, 1, 0, 1000, 0}, 2);
  EXPECT_GT(m.cosine, 0.999999);
  EXPECT_EQ(m.worst_row_cosine, 0);
}

TEST(Metrics, ZeroOutputFails) {
  const Metrics m = compare_rows({0, 0, -0.0f, 0}, {3, 0, 0, 4}, 2);
  EXPECT_DOUBLE_EQ(m.relative_l2, 1);
  EXPECT_EQ(m.cosine, 0);
  EXPECT_EQ(m.snr_db, 0);
  EXPECT_EQ(m.zeros, 1);
}

TEST(Metrics, ZeroReference) {
  Metrics m = compare_rows({0, 0}, {0, 0}, 2);
  EXPECT_EQ(m.relative_l2, 0);
  EXPECT_EQ(m.cosine, 1);
  m = compare_rows({0, 1}, {0, 0}, 2);
  EXPECT_EQ(m.relative_l2, std::numeric_limits<double>::infinity());
  EXPECT_EQ(m.cosine, 0);
  EXPECT_EQ(m.snr_db, -std::numeric_limits<double>::infinity());
}

TEST(Metrics, NansAndInfinitiesAreCountedAndLeftOut) {
  const Metrics m = compare_rows({kNan, kInf, -kInf, 5}, {kNan, kInf, -kInf, 4}, 2);
  EXPECT_EQ(m.nan, 1);
  EXPECT_EQ(m.nan_want, 1);
  EXPECT_EQ(m.inf, 2);
  EXPECT_EQ(m.inf_want, 2);
  EXPECT_TRUE(m.masks_agree);
  EXPECT_DOUBLE_EQ(m.relative_l2, 0.25);
  EXPECT_DOUBLE_EQ(m.rmse, 1);  // over the one pair of finite values
}

TEST(Metrics, SpecialsInOtherPlacesDisagree) {
  EXPECT_FALSE(compare_rows({kNan, 1}, {1, kNan}, 2).masks_agree);
  EXPECT_FALSE(compare_rows({kNan, 1}, {1, 1}, 2).masks_agree);
  EXPECT_FALSE(compare_rows({1, 1}, {kNan, 1}, 2).masks_agree);
  EXPECT_FALSE(compare_rows({kInf, 1}, {1, 1}, 2).masks_agree);
  EXPECT_FALSE(compare_rows({1, 1}, {kInf, 1}, 2).masks_agree);
  EXPECT_FALSE(compare_rows({kInf, 1}, {-kInf, 1}, 2).masks_agree);
  EXPECT_FALSE(compare_rows({kInf, 1}, {kNan, 1}, 2).masks_agree);
}

TEST(Metrics, StridesAndTypesAreHonoured) {
  // want: f32 [2, 3] row-major. got: the same numbers in BF16, stored as [3, 2] and transposed.
  std::vector<float> want = {1, 2, 3, 4, 5, 6};
  Tensor stored = make_tensor(DType::bf16, {3, 2});
  for (int column = 0; column < 3; ++column) {
    const std::vector<float> row = {want[column], want[3 + column]};
    store_row(stored.view(), column, row);
  }
  const TensorView got = transposed(stored.view(), 0, 1);
  EXPECT_EQ(compare(got, contiguous(want.data(), DType::f32, {2, 3})).relative_l2, 0);
  // Read without the transposition, the shapes differ; reshaped, so do the values.
  EXPECT_THROW(compare(stored.view(), contiguous(want.data(), DType::f32, {2, 3})), Error);
  EXPECT_GT(compare(contiguous(stored.bytes.data(), DType::bf16, {2, 3}),
                    contiguous(want.data(), DType::f32, {2, 3}))
                .relative_l2,
            0.1);
}

TEST(Metrics, EveryTypeIsRead) {
  const std::vector<float> values = {0.5f, -1.5f, 448, 0};
  std::vector<float> want = values;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3}) {
    Tensor x = make_tensor(dtype, {1, 4});
    store_row(x.view(), 0, values);
    EXPECT_EQ(compare(x.view(), contiguous(want.data(), DType::f32, {1, 4})).max_abs, 0)
        << dtype_name(dtype);
  }
}

TEST(Metrics, ShapeErrorsNameBothShapes) {
  Tensor a = make_tensor(DType::f32, {2, 3}), b = make_tensor(DType::f32, {3, 2});
  try {
    compare(a.view(), b.view());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "compare: got.shape is [2, 3]; must equal want.shape, [3, 2]");
  }
}

TEST(Metrics, EmptyTensorsAreEqual) {
  Tensor a = make_tensor(DType::f32, {0, 3});
  const Metrics m = compare(a.view(), a.view());
  EXPECT_EQ(m.count, 0);
  EXPECT_EQ(m.relative_l2, 0);
  EXPECT_TRUE(bit_equal(a.view(), a.view()));
}

TEST(BitEqual, SeesEveryBit) {
  std::vector<float> a = {0.0f, kNan}, b = {-0.0f, kNan};
  const auto view = [](std::vector<float>& x) { return contiguous(x.data(), DType::f32, {2}); };
  EXPECT_TRUE(bit_equal(view(a), view(a)));
  EXPECT_FALSE(bit_equal(view(a), view(b)));
  b = a;
  EXPECT_TRUE(bit_equal(view(a), view(b)));
  Tensor half = make_tensor(DType::f16, {2});
  EXPECT_FALSE(bit_equal(half.view(), view(a)));
}

TEST(Tensor, PoisonIsNanInEveryType) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2}) {
    Tensor x = make_tensor(dtype, {2, 3});
    poison(x);
    std::vector<float> row(3);
    load_row(x.view(), 1, row);
    for (const float value : row) EXPECT_TRUE(std::isnan(value)) << dtype_name(dtype);
  }
}

TEST(Tensor, ImpossibleShapesAreRefused) {
  EXPECT_THROW(make_tensor(DType::f32, {}), Error);
  EXPECT_THROW(make_tensor(DType::f32, {1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(make_tensor(DType::f32, {-1}), Error);
  EXPECT_THROW(make_tensor(DType::f32, {std::int64_t{1} << 40, std::int64_t{1} << 40}), Error);
}

}  // namespace
}  // namespace octavo::workload
