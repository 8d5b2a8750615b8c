// SPDX-License-Identifier: Apache-2.0
// Strides, offsets beyond 32 bits, outputs inside larger allocations.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "octavo/error.h"
#include "support/call.h"
#include "support/compare.h"
#include "support/sanitizer.h"

namespace octavo::test {
namespace {

constexpr const char* kEngines[] = {"emulate", "reference"};
constexpr Extents kExtents = {.b = 2, .sq = 150, .sk = 150, .hq = 4, .hkv = 2, .d = 64, .dv = 64};

/// Copies a [b, s, h, d] tensor to where `view` points.
void copy_to(const TensorView& view, const Tensor& from) {
  for (std::int64_t b = 0; b < from.extent(0); ++b) {
    for (std::int64_t s = 0; s < from.extent(1); ++s) {
      for (std::int64_t h = 0; h < from.extent(2); ++h) {
        std::memcpy(row_pointer(view, b, s, h),
                    from.bytes().data() +
                        static_cast<std::size_t>(from.at(b, s, h, 0)) * size_of(from.dtype()),
                    static_cast<std::size_t>(from.extent(3)) * size_of(from.dtype()));
      }
    }
  }
}

/// Heads [first, first + count) of a [b, s, h, d] view.
TensorView heads(TensorView x, std::int64_t first, std::int64_t count) {
  x.data = row_pointer(x, 0, 0, first);
  x.shape[2] = count;
  return x;
}

void expect_same_as_contiguous(Inputs& x, const AttentionParams& strided) {
  for (const char* engine : kEngines) {
    const Result want = run(x.params(), engine), got = run(strided, engine);
    EXPECT_TRUE(identical(got.out, want.out)) << engine;
    EXPECT_TRUE(identical(got.lse, want.lse)) << engine;
  }
}

TEST(CasesLayout, SlicesOfPackedQkvAreHonoured) {
  Inputs x = normal_inputs(kExtents, 71);
  Tensor packed(DType::bf16, {2, 150, 8, 64});
  packed.poison();
  AttentionParams params = x.params();
  params.q = heads(packed.view(), 0, 4);
  params.k = heads(packed.view(), 4, 2);
  params.v = heads(packed.view(), 6, 2);
  copy_to(params.q, x.q);
  copy_to(params.k, x.k);
  copy_to(params.v, x.v);
  expect_same_as_contiguous(x, params);
}

TEST(CasesLayout, HeadMajorOperandsAreHonoured) {
  Inputs x = normal_inputs(kExtents, 72);
  Tensor q(DType::bf16, {2, 4, 150, 64}), k(DType::bf16, {2, 2, 150, 64}), v = k;
  AttentionParams params = x.params();
  params.q = transposed(q.view(), 1, 2);
  params.k = transposed(k.view(), 1, 2);
  params.v = transposed(v.view(), 1, 2);
  copy_to(params.q, x.q);
  copy_to(params.k, x.k);
  copy_to(params.v, x.v);
  expect_same_as_contiguous(x, params);
}

TEST(CasesLayout, StrideOfZeroBroadcastsAnOperand) {
  Inputs x = normal_inputs({.b = 3, .sq = 70, .sk = 150, .hq = 2, .hkv = 2}, 73);
  for (std::int64_t b = 1; b < 3; ++b) {
    for (std::int64_t i = 0; i < x.k.at(1, 0, 0, 0); ++i) {
      x.k.set(x.k.at(b, 0, 0, 0) + i, x.k.get(i));
      x.v.set(x.v.at(b, 0, 0, 0) + i, x.v.get(i));
    }
  }
  AttentionParams params = x.params();
  params.k.stride[0] = params.v.stride[0] = 0;
  expect_same_as_contiguous(x, params);
}

TEST(CasesLayout, TransposedLastDimensionIsRefused) {
  Inputs x = normal_inputs(kExtents, 74);
  for (TensorView AttentionParams::*operand :
       {&AttentionParams::q, &AttentionParams::k, &AttentionParams::v}) {
    AttentionParams params = x.params();
    (params.*operand).stride[1] = 1;
    (params.*operand).stride[3] = 150;
    EXPECT_THROW(emulate(params), Error);
  }
}

/// An output whose rows are spread over a larger buffer of 0xff.
struct Spread {
  std::vector<std::byte> buffer;
  TensorView view;

  Spread(DType dtype, const Tensor& like, std::int64_t row_gap, std::int64_t front)
      : buffer(static_cast<std::size_t>(2 * front + like.numel() / like.extent(3) *
                                                        (like.extent(3) + row_gap)) *
                   size_of(dtype),
               std::byte{0xff}) {
    view.data = buffer.data() + static_cast<std::size_t>(front) * size_of(dtype);
    view.dtype = dtype;
    view.rank = 4;
    std::int64_t stride = like.extent(3) + row_gap;
    for (const int i : {2, 1, 0}) {
      view.shape[static_cast<std::size_t>(i)] = like.extent(i);
      view.stride[static_cast<std::size_t>(i)] = stride;
      stride *= like.extent(i);
    }
    view.shape[3] = like.extent(3);
    view.stride[3] = 1;
  }

  /// Whether rows hold `want` and every byte outside them still is 0xff.
  testing::AssertionResult holds(const Tensor& want) {
    std::vector<std::byte> expected(buffer.size(), std::byte{0xff});
    TensorView copy = view;
    copy.data = expected.data() + (static_cast<std::byte*>(view.data) - buffer.data());
    copy_to(copy, want);
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      if (buffer[i] == expected[i]) continue;
      return testing::AssertionFailure() << "byte " << i << " of " << buffer.size() << " differs";
    }
    return testing::AssertionSuccess();
  }
};

TEST(CasesLayout, EveryRowIsWrittenAndNothingBeyond) {
  for (const DType out : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t sq : {1, 63, 65, 127, 129, 200}) {
      Inputs x =
          normal_inputs({.b = 2, .sq = sq, .sk = 100, .hq = 2, .hkv = 1, .d = 64, .dv = 40}, 75);
      for (const char* engine : kEngines) {
        SCOPED_TRACE(testing::Message() << engine << ", sq " << sq << ", " << dtype_name(out));
        const Result want = run(x.params(), engine, out);
        EXPECT_TRUE(all_finite(want.out));
        EXPECT_TRUE(all_finite(want.lse));
        Spread spread(out, want.out, 24, 16);
        AttentionParams params = x.params();
        params.engine = engine;
        params.out = spread.view;
        attention_forward(params);
        EXPECT_TRUE(spread.holds(want.out));
      }
    }
  }
}

TEST(CasesLayout, LseIsWrittenByItsStridesAndMayBeLeftOut) {
  Inputs x = normal_inputs(kExtents, 76);
  for (const char* engine : kEngines) {
    const Result want = run(x.params(), engine);
    Tensor out(DType::f32, want.out.shape()), wide(DType::f32, {2, 150, 12});
    wide.poison();
    AttentionParams params = x.params();
    params.engine = engine;
    params.out = out.view();
    params.lse = transposed(wide.view(), 1, 2);  // [b, h, s] with 8 unused floats a row
    params.lse.shape[1] = 4;
    attention_forward(params);
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t s = 0; s < 150; ++s) {
        for (std::int64_t h = 0; h < 4; ++h) {
          ASSERT_EQ(wide.get(wide.at(b, s, h)), want.lse.get(want.lse.at(b, h, s)));
        }
        for (std::int64_t h = 4; h < 12; ++h) ASSERT_TRUE(std::isnan(wide.get(wide.at(b, s, h))));
      }
    }
    params.lse = {};
    out.poison();
    attention_forward(params);
    EXPECT_TRUE(identical(out, want.out));
  }
}

/// Address space that costs memory only where it is touched.
struct Sparse {
  std::size_t size;
  void* data;

  explicit Sparse(std::size_t bytes)
      : size(bytes),
        data(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Sparse() {
    if (valid()) munmap(data, size);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  bool valid() const { return data != MAP_FAILED; }
};

TEST(CasesLayout, OffsetsPast32BitsReachTheLastBatchEntry) {
  Inputs x = normal_inputs({.b = 2, .sq = 5, .sk = 140, .hq = 2, .hkv = 2, .d = 64, .dv = 64}, 77);
  for (const std::int64_t stride : {(std::int64_t{1} << 31) + 64, (std::int64_t{1} << 32) + 64}) {
    SCOPED_TRACE(stride);
    const Sparse memory(static_cast<std::size_t>(stride + 65536) * 2);
    if (!memory.valid()) GTEST_SKIP() << "no address space for " << memory.size << " bytes";
    AttentionParams params = x.params();
    std::int64_t used = 0;
    for (const auto& [view, from] :
         {std::pair{&params.q, &x.q}, {&params.k, &x.k}, {&params.v, &x.v}}) {
      view->data = static_cast<std::byte*>(memory.data) + 2 * used;
      view->stride[0] = stride;
      copy_to(*view, *from);
      used += from->at(1, 0, 0, 0);
    }
    for (const char* engine : kEngines) {
      EXPECT_TRUE(identical(run(params, engine).out, run(x.params(), engine).out)) << engine;
    }
    AttentionParams with_far_output = params;
    with_far_output.out =
        contiguous(static_cast<std::byte*>(memory.data) + 2 * used, DType::bf16, {2, 5, 2, 64});
    with_far_output.out.stride[0] = stride;
    attention_forward(with_far_output);
    const Result near = emulate(x.params(), DType::bf16);
    const std::byte* last = row_pointer(with_far_output.out, 1, 0, 0);
    EXPECT_EQ(std::memcmp(last, near.out.bytes().data() + 5 * 2 * 64 * 2, 5 * 2 * 64 * 2), 0);
  }
}

/// More (batch, head) pairs than a 16-bit index holds.
TEST(CasesLayout, ManyShortBatchEntriesAreEachRight) {
  const std::int64_t b = kSanitized ? 150 : 8300;  // 1024 heads are resident at a time
  Inputs x = normal_inputs({.b = b, .sq = 1, .sk = 1, .hq = 8, .hkv = 8, .d = 8, .dv = 8}, 78);
  const Result got = emulate(x.params(Recipe::per_head()), DType::bf16);
  // One key: O is V but for V's own rounding to E4M3, at most half a step of 1/8.
  for (std::int64_t i = 0; i < x.v.numel(); ++i) {
    const float v = x.v.get(i);
    ASSERT_NEAR(got.out.get(i), v, 0.0652f * std::fabs(v) + 1e-3f) << "element " << i;
  }
}

}  // namespace
}  // namespace octavo::test
