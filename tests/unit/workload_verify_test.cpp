// SPDX-License-Identifier: Apache-2.0
// The judge of `octavo verify`: it accepts the emulation and refuses every mutation of its output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "octavo/error.h"
#include "workload/random_problem.h"
#include "workload/verify.h"

namespace octavo::workload {
namespace {

TEST(Verify, EmulationPassesAgainstReference) {
  for (const char* line :
       {"s257 hq4 hkv2 d64 causal", "b2 sq65 sk300 h2 window=60,3 lens=300,17 layout=bhsd",
        "s129 in=f8", "s129 h2 d64 out=f32 layout=packed softmax=direct", "sq65 sk3 causal",
        "b2 sq3 sk64 lens=0,0", "s257 hq4 hkv2 d64 causal precision=bf16",
        "b2 sq65 sk300 h2 d192 window=60,3 lens=300,17 precision=fp16 out=f32"}) {
    const Verdict v = verify_problem(parse_problem(line), "emulate", "reference", 1);
    EXPECT_TRUE(v.ok) << line << ": " << v.why;
  }
}

TEST(Verify, AnEngineIsTheSameOnAnyNumberOfThreads) {
  const Verdict v = verify_problem(parse_problem("s257 h3 d64 causal"), "emulate", "emulate", 3);
  EXPECT_TRUE(v.ok) << v.why;
  EXPECT_TRUE(v.same);
}

TEST(Verify, AnEngineIsNotHeldAgainstItselfUnawares) {
  const Problem problem = parse_problem("s8 d64");
  const auto refusal = [&](const char* engine, const char* against, int threads) -> std::string {
    try {
      verify_problem(problem, engine, against, threads);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("auto", "emulate", 2),
            "verify: engine is 'auto' and against is 'emulate', and both run emulate; must lead to "
            "two engines: one against itself agrees whatever it computes");
  EXPECT_EQ(refusal("reference", "reference", 2),
            "verify: engine is 'reference' and against is 'reference', and both run reference; "
            "must lead to two engines: one against itself agrees whatever it computes");
  EXPECT_EQ(refusal("emulate", "emulate", 1),
            "verify: threads is 1; must be another number, since an engine against itself runs "
            "once on one thread and once on these");
}

// Results of both engines on one problem, to be spoilt.
class Mutation : public testing::Test {
 protected:
  Problem problem_ = parse_problem("b2 s192 hq4 hkv2 d64 causal out=f32 seed=5");
  Inputs inputs_ = generate(problem_);
  RunResult got_ = run_problem(problem_, inputs_, {"emulate", 1, {}});
  RunResult want_ = run_problem(problem_, inputs_, {"reference", 1, {}});

  // Of f32 elements of the output, [b, s, h, d].
  float* out(std::int64_t b, std::int64_t s, std::int64_t h) {
    return static_cast<float*>(got_.out.data) + ((b * 192 + s) * 4 + h) * 64;
  }
  void expect_refused(const char* reason) {
    const Verdict v = judge(problem_, got_, want_);
    EXPECT_FALSE(v.ok);
    EXPECT_NE(v.why.find(reason), std::string::npos) << v.why;
  }
};

TEST_F(Mutation, NoneIsAccepted) {
  const Verdict v = judge(problem_, got_, want_);
  EXPECT_TRUE(v.ok) << v.why;
}

TEST_F(Mutation, ZeroOutput) {
  std::memset(got_.out.data, 0, got_.out_storage.bytes.size());
  expect_refused("relative L2 is 100 %; must be at most");
}

TEST_F(Mutation, ReferenceInDisguise) {
  std::memcpy(got_.out.data, want_.out.data, got_.out_storage.bytes.size());
  expect_refused("or FP8 did not happen");
}

TEST_F(Mutation, HeadsExchanged) {
  for (std::int64_t s = 0; s < 192; ++s) std::swap_ranges(out(0, s, 0), out(0, s, 1), out(0, s, 1));
  expect_refused("must be at most");
}

TEST_F(Mutation, OneRowExchangedAmongHundreds) {
  std::swap_ranges(out(1, 190, 2), out(1, 190, 3), out(1, 190, 3));
  expect_refused("worst row's cosine");
}

TEST_F(Mutation, RowLeftUnwritten) {
  std::memset(out(1, 191, 3), 0xff, 64 * sizeof(float));
  expect_refused("NaNs or infinities of out are 64 and 0");
}

/// The bounds of 16 bits are those of the type: neither the other one nor FP8 passes, and a key
/// tile (64 keys, or 128) cannot be missing.
TEST(VerifyIn16Bits, ErrorsOfOtherKindsAreRefused) {
  for (const char* name : {"bf16", "fp16"}) {
    const Problem problem =
        parse_problem(std::string("s300 h2 d64 out=f32 precision=") + name + " seed=6");
    const Inputs inputs = generate(problem);
    RunResult want = run_problem(problem, inputs, {"reference", 1, {}});
    const auto why = [&](const Problem& computed) {
      RunResult got = run_problem(computed, inputs, {"emulate", 1, {}});
      return judge(problem, got, want).why;
    };
    EXPECT_EQ(why(problem), "");
    Problem fp8 = problem;
    fp8.precision = Precision::fp8;
    EXPECT_NE(why(fp8).find("must be at most"), std::string::npos) << why(fp8);
    Problem shorter = problem;
    shorter.lens = {256};
    EXPECT_NE(why(shorter).find("must be at most"), std::string::npos) << why(shorter);
    RunResult exact = run_problem(problem, inputs, {"reference", 1, {}});
    exact.stats.engine = "emulate";
    EXPECT_NE(judge(problem, exact, want).why.find(std::string("or P was not rounded to ") + name),
              std::string::npos);
  }
}

TEST_F(Mutation, DescaleDropped) {
  for (std::int64_t i = 0; i < got_.out.numel(); ++i) out(0, 0, 0)[i] *= 1.25f;
  expect_refused("must be at most");
}

TEST_F(Mutation, MaskOffByOne) {
  // What a query sees one token later, put one row too early.
  for (std::int64_t b = 0; b < 2; ++b) {
    std::memmove(out(b, 0, 0), out(b, 1, 0), 191 * 4 * 64 * sizeof(float));
  }
  expect_refused("must be at most");
}

TEST_F(Mutation, LseInBaseTwo) {
  auto* lse = static_cast<float*>(got_.lse.view().data);
  for (std::int64_t i = 0; i < got_.lse.view().numel(); ++i) lse[i] *= 1.4426950f;
  expect_refused("lse differs by");
}

TEST_F(Mutation, LseWithoutNegativeInfinity) {
  auto* lse = static_cast<float*>(want_.lse.view().data);
  lse[3] = -std::numeric_limits<float>::infinity();
  expect_refused("NaNs or infinities of lse");
}

TEST_F(Mutation, StrayWrites) {
  got_.stray_writes = 16;
  expect_refused("16 bytes between output rows were written");
}

TEST(Run, GapsOfPackedOutputsAreWatched) {
  const Problem problem = parse_problem("s65 h2 d64 layout=packed");
  const RunResult result = run_problem(problem, generate(problem), {"emulate", 1, {}});
  EXPECT_EQ(result.stray_writes, 0);
  EXPECT_EQ(result.out.stride[2], 64 + 8);
}

TEST(RandomProblem, IsReproducibleAndVaried) {
  EXPECT_EQ(random_problem(1, 5), random_problem(1, 5));
  EXPECT_NE(random_problem(1, 5), random_problem(1, 6));
  EXPECT_NE(random_problem(1, 5), random_problem(2, 5));
  int packed = 0, fp8 = 0, causal = 0, direct = 0, lens = 0, bf16 = 0, fp16 = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Problem p = random_problem(1, i);
    packed += p.layout == Layout::packed;
    fp8 += is_fp8(p.in);
    causal += p.mask == MaskSpec::causal();
    direct += p.softmax == SoftmaxPath::direct;
    lens += !p.lens.empty();
    bf16 += p.precision == Precision::bf16;
    fp16 += p.precision == Precision::fp16;
  }
  for (const int count : {packed, fp8, causal, direct, lens, bf16, fp16}) EXPECT_GT(count, 5);
}

}  // namespace
}  // namespace octavo::workload
