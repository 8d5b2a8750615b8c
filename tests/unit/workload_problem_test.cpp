// SPDX-License-Identifier: Apache-2.0
// One-line problems: reading, writing, refusing.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "octavo/error.h"
#include "workload/problem.h"
#include "workload/problem_text.h"
#include "workload/random_problem.h"

namespace octavo::workload {
namespace {

std::string refusal(const std::string& line) {
  try {
    parse_problem(line);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted: " + line;
}

TEST(Problem, DefaultsAreFilled) {
  const Problem p = parse_problem("s1024");
  EXPECT_EQ(p.b, 1);
  EXPECT_EQ(p.sq, 1024);
  EXPECT_EQ(p.sk, 1024);
  EXPECT_EQ(p.hq, 1);
  EXPECT_EQ(p.hkv, 1);
  EXPECT_EQ(p.d, 128);
  EXPECT_EQ(p.dv, 128);
  EXPECT_EQ(p.mask, MaskSpec::none());
  EXPECT_EQ(p.recipe, Recipe::standard());
  EXPECT_EQ(p.in, DType::bf16);
  EXPECT_EQ(p.promote, 1);
  EXPECT_EQ(p.splits, 1);
}

TEST(Problem, EveryFieldIsRead) {
  const Problem p = parse_problem(
      "b2 sq1023 sk4096 hq16 hkv4 d96 dv64 window=128,all lens=4096,7 scale=0.25 softcap=30 "
      "recipe=block+rotate softmax=direct acc=fp32 promote=none splits=5 in=f8 out=f32 dist=sink "
      "seed=7 layout=bhsd");
  EXPECT_EQ(p.b, 2);
  EXPECT_EQ(p.sq, 1023);
  EXPECT_EQ(p.sk, 4096);
  EXPECT_EQ(p.hq, 16);
  EXPECT_EQ(p.hkv, 4);
  EXPECT_EQ(p.d, 96);
  EXPECT_EQ(p.dv, 64);
  EXPECT_EQ(p.mask, MaskSpec::window(128, MaskSpec::kUnlimited));
  EXPECT_EQ(p.lens, (std::vector<std::int64_t>{4096, 7}));
  EXPECT_EQ(p.scale, 0.25);
  EXPECT_EQ(p.softcap, 30);
  EXPECT_EQ(p.recipe, parse_recipe("block+rotate"));
  EXPECT_EQ(p.softmax, SoftmaxPath::direct);
  EXPECT_EQ(p.acc, Accumulator::fp32);
  EXPECT_EQ(p.promote, 0);
  EXPECT_EQ(p.splits, 5);
  EXPECT_EQ(p.in, DType::f8_e4m3);
  EXPECT_EQ(p.out, DType::f32);
  EXPECT_EQ(p.dist, Distribution::sink);
  EXPECT_EQ(p.seed, 7u);
  EXPECT_EQ(p.layout, Layout::bhsd);
}

TEST(Problem, CanonicalLineIsShortest) {
  const auto canonical = [](const char* line) { return format_problem(parse_problem(line)); };
  EXPECT_EQ(canonical("b1 sq64 sk64 hq1 hkv1 d128 dv128 none recipe=default in=bf16 seed=0"),
            "s64");
  EXPECT_EQ(canonical("sq64 sk64 hq8 hkv8"), "s64 h8");
  EXPECT_EQ(canonical("d64 s3 hq8"), "s3 hq8 d64");
  EXPECT_EQ(canonical("s3 window=all,0"), "s3 causal");
  EXPECT_EQ(canonical("s3 window=all,all"), "s3");
  EXPECT_EQ(canonical("\t s3  d192 \r dv128\n"), "s3 d192 dv128");
  EXPECT_EQ(canonical("s3 recipe=default+rotate+smooth"), "s3");
  EXPECT_EQ(canonical("s3 splits=1"), "s3");
  EXPECT_EQ(canonical("s3 out=f32 splits=07 promote=2"), "s3 promote=2 splits=7 out=f32");
  EXPECT_EQ(canonical("s3 precision=fp8"), "s3");
  EXPECT_EQ(canonical("s3 in=bf16 precision=bf16"), "s3 precision=bf16");
  EXPECT_EQ(canonical("s3 precision=fp16"), "s3 precision=fp16");
  EXPECT_EQ(canonical("s3 in=f16 precision=fp16"), "s3 precision=fp16");
  EXPECT_EQ(canonical("s3 in=bf16 precision=fp16"), "s3 precision=fp16 in=bf16");
  EXPECT_EQ(canonical("s3 recipe=block precision=bf16"), "s3 precision=bf16 recipe=block");
  EXPECT_EQ(canonical("s3 promote=1 scale=1e-1 softcap=0.1"), "s3 scale=0.1 softcap=0.1");
}

TEST(Problem, RandomProblemsSurviveTheRoundTrip) {
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Problem p = random_problem(3, i);
    const std::string line = format_problem(p);
    ASSERT_EQ(parse_problem(line), p) << line;
    ASSERT_EQ(format_problem(parse_problem(line)), line);
  }
}

TEST(Problem, OneRandomProblemInSixSplitsItsKeys) {
  int split = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const int splits = random_problem(3, i).splits;
    ASSERT_TRUE(splits >= 1 && splits <= 5) << splits;
    split += splits > 1;
  }
  EXPECT_NEAR(split, 2000 / 6, 60);
}

TEST(Problem, ExtremesSurviveTheRoundTrip) {
  for (const char* line :
       {"s1099511627776 d1", "s1 seed=18446744073709551615", "s1 scale=1.17549435e-38",
        "s1 scale=3.4028234e+38 softcap=1.1754944e-38", "s1 window=0,1099511627776",
        "s2 promote=2147483647", "s2 splits=64"}) {
    const Problem p = parse_problem(line);
    EXPECT_EQ(parse_problem(format_problem(p)), p) << line;
  }
}

TEST(Problem, EveryRefusalNamesTokenValueAndRule) {
  EXPECT_EQ(refusal(""),
            "problem: sq is missing; a line must set sq and sk (or both by s), as in \"b1 s1024 h8 "
            "d128 causal\"");
  EXPECT_EQ(refusal("sq5"),
            "problem: sk is missing; a line must set sq and sk (or both by s), as in \"b1 s1024 h8 "
            "d128 causal\"");
  EXPECT_EQ(refusal("s0"), "problem: s is '0'; must be a whole number from 1 to 1099511627776");
  EXPECT_EQ(refusal("s"), "problem: s is ''; must be a whole number from 1 to 1099511627776");
  EXPECT_EQ(refusal("s99999999999999999999"),
            "problem: s is '99999999999999999999'; must be a whole number from 1 to 1099511627776");
  EXPECT_EQ(refusal("s8x"), "problem: s is '8x'; must be a whole number from 1 to 1099511627776");
  EXPECT_EQ(refusal("s8 b-1"),
            "problem: b is '-1'; must be a whole number from 1 to 1099511627776");
  EXPECT_EQ(refusal("s8 sq9"), "problem: token 'sq9' sets sq again; must be set at most once");
  EXPECT_EQ(refusal("s8 causal window=1,1"),
            "problem: token 'window=1,1' sets mask again; must be set at most once");
  EXPECT_EQ(refusal("s8 seed=1 seed=1"),
            "problem: token 'seed=1' sets seed again; must be set at most once");
  EXPECT_EQ(refusal("s8 seed=-1"),
            "problem: seed is '-1'; must be a whole number from 0 to 2^64 - 1");
  EXPECT_EQ(refusal("s8 seed=18446744073709551616"),
            "problem: seed is '18446744073709551616'; must be a whole number from 0 to 2^64 - 1");
  EXPECT_EQ(
      refusal("s8 window=3"),
      "problem: window is '3'; must be L,R: whole numbers from 0 (or \"all\") of keys back and "
      "ahead");
  EXPECT_EQ(
      refusal("s8 window=-1,3"),
      "problem: window is '-1,3'; must be L,R: whole numbers from 0 (or \"all\") of keys back "
      "and ahead");
  EXPECT_EQ(refusal("s8 lens=3,"),
            "problem: lens is '3,'; must be A,B,..: one whole number from 0 for each batch entry");
  for (const char* bad : {"0", "-1", "inf", "nan", "1e-60", "1e60", "x", "1,2", "0x10"}) {
    EXPECT_EQ(refusal(std::string("s8 scale=") + bad),
              std::string("problem: scale is '") + bad + "'; must be a positive finite number");
    EXPECT_EQ(refusal(std::string("s8 softcap=") + bad),
              std::string("problem: softcap is '") + bad + "'; must be a positive finite number");
  }
  EXPECT_EQ(refusal("s8 promote=0"),
            "problem: promote is '0'; must be a whole number of key tiles from 1, or none");
  for (const char* bad : {"0", "65", "none", "2x"}) {
    EXPECT_EQ(refusal(std::string("s8 splits=") + bad),
              std::string("problem: splits is '") + bad + "'; must be a whole number from 1 to 64");
  }
  EXPECT_EQ(
      refusal("s8 dist=cauchy"),
      "problem: dist is 'cauchy'; must be one of normal, outlier, channel, sink, wide, uniform");
  EXPECT_EQ(refusal("s8 layout=sbhd"),
            "problem: layout is 'sbhd'; must be one of bshd, bhsd, packed");
  EXPECT_EQ(refusal("s8 seed="), "problem: seed is ''; must be 1 to 256 characters");
  EXPECT_EQ(
      refusal("sq8 sk9 layout=packed"),
      "problem: layout is 'packed'; must have sq equal to sk, dv equal to d and in=bf16, f16 or "
      "f32, as Q, K and V are slices of one tensor");
  EXPECT_EQ(refusal("b1099511627776 s1099511627776"),
            "problem: q has more than 2^42 elements; must fit in memory");
  EXPECT_EQ(refusal(std::string(5000, 's')),
            "problem: the line has 5000 characters; must have at most 4096");
  EXPECT_EQ(refusal("s8 \x01\xff"),
            "problem: token '?"
            "?' holds other bytes; must be printable ASCII");
}

TEST(Problem, UnknownTokensAreListed) {
  for (const char* token : {"x8", "S8", "fast", "mask=causal", "=", "8"}) {
    const std::string sentence = refusal(std::string("s8 ") + token);
    EXPECT_EQ(sentence.find("problem: token " + quoted(token) + " is unknown; must be an extent"),
              0u)
        << sentence;
  }
}

TEST(Problem, NamesOfTheLibraryAreRefusedByTheLibrary) {
  for (const char* token :
       {"recipe=fast", "precision=f16", "softmax=base2", "acc=bf16", "in=i8", "out=i8"}) {
    const std::string sentence = refusal(std::string("s8 ") + token);
    EXPECT_NE(sentence.find("must be"), std::string::npos) << sentence;
  }
}

TEST(Problem, ElementTypesAreThoseOfTheKey) {
  EXPECT_EQ(refusal("s8 in=f8_e4m3"),
            "problem: in is 'f8_e4m3'; must be one of f32, f16, bf16, f8");
  EXPECT_EQ(refusal("s8 out=f8"), "problem: out is 'f8'; must be one of f32, f16, bf16");
}

class ProblemFile : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_) << text; }
  void TearDown() override { std::remove(path_.c_str()); }

  // The test's own: tests run side by side.
  const std::string path_ = testing::TempDir() + "octavo_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name() + ".txt";
};

TEST_F(ProblemFile, CommentsAndEmptyLinesAreSkipped) {
  write("# shapes\n\ns3 causal  # odd\r\n   \ns4 h2");
  const auto problems = read_problem_file(path_);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(format_problem(problems[0]), "s3 causal");
  EXPECT_EQ(format_problem(problems[1]), "s4 h2");
}

TEST_F(ProblemFile, ErrorsNameFileAndLine) {
  write("# one\ns3\ns0\n");
  try {
    read_problem_file(path_);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(),
              path_ + ":3: problem: s is '0'; must be a whole number from 1 to 1099511627776");
  }
}

TEST(ProblemFileErrors, UnreadableFilesAreIoErrors) {
  for (const std::string& path : {std::string("/nonexistent/problems.txt"), testing::TempDir()}) {
    try {
      read_problem_file(path);
      FAIL() << "accepted " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_EQ(std::string(error.what()).find(path + ": "), 0u) << error.what();
    }
  }
}

TEST(VisiblePairs, CountsWhatTheMaskLeaves) {
  const auto pairs = [](const char* line) { return visible_pairs(parse_problem(line)); };
  EXPECT_EQ(pairs("s4"), 16);
  EXPECT_EQ(pairs("s4 causal"), 1 + 2 + 3 + 4);
  EXPECT_EQ(pairs("sq2 sk4 causal"), 3 + 4);
  EXPECT_EQ(pairs("sq4 sk2 causal"), 0 + 0 + 1 + 2);
  EXPECT_EQ(pairs("s4 window=1,0"), 1 + 2 + 2 + 2);
  EXPECT_EQ(pairs("b3 s4 lens=4,0,1"), 16 + 0 + 4);
  EXPECT_EQ(flop_count(parse_problem("b2 s8 h3 d16 dv32")), 2.0 * (16 + 32) * 3 * 2 * 64);
}

}  // namespace
}  // namespace octavo::workload
