// SPDX-License-Identifier: Apache-2.0
// The Hopper forward pass against the emulation: the same codes, the same tensor-core sums, so all
// that may differ is the last bits of exponentials (workload/bounds.h, emulation_bounds).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/half.h"
#include "gpu/captured_graph.h"
#include "gpu/device_memory.h"
#include "octavo/cuda.h"
#include "octavo/error.h"
#include "sm90/device.h"
#include "support/refusal.h"
#include "workload/generate.h"
#include "workload/problem.h"
#include "workload/random_problem.h"
#include "workload/run.h"
#include "workload/verify.h"

namespace octavo::test {
namespace {

using workload::Problem;

Problem parse(const std::string& line) { return workload::parse_problem(line); }

/// Whether the Hopper kernels compute it with direct softmax, too.
bool takes_direct(const Problem& p) {
  return p.precision == Precision::fp8 && p.recipe.v != Granularity::token &&
         p.recipe.kv_format == DType::f8_e4m3;
}

/// The same problem with settings that the Hopper kernels have.
Problem for_sm90(Problem p) {
  if (!takes_direct(p)) p.softmax = SoftmaxPath::exact;
  p.acc = Accumulator::hopper;
  p.promote = 1;
  return p;
}

/// Whether it ran: operands that are read in place, off 16-byte boundaries, are refused, and only
/// those.
bool expect_agrees(const Problem& p) {
  try {
    const workload::Verdict v = workload::verify_problem(p, "sm90", "emulate");
    EXPECT_TRUE(v.ok) << workload::format_problem(p) << ": " << v.why;
    return true;
  } catch (const Error& error) {
    const bool boundaries = std::string(error.what()).find("16 bytes") != std::string::npos;
    const bool in_place = is_fp8(p.in) || p.precision != Precision::fp8;
    EXPECT_TRUE(in_place && boundaries) << workload::format_problem(p) << ": " << error.what();
    return false;
  }
}

/// By both paths of softmax.
void expect_agree(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    Problem p = parse(line);
    EXPECT_TRUE(expect_agrees(p)) << line;
    if (!takes_direct(p)) continue;
    p.softmax = SoftmaxPath::direct;
    EXPECT_TRUE(expect_agrees(p)) << line << " softmax=direct";
  }
}

/// Every kernel once: what the sanitizers run.
TEST(AttentionGpu, SmokeOfEveryKernel) {
  for (const char* dims : {"d64", "d96", "d128", "d192 dv128", "d192", "d256"}) {
    for (const char* kind :
         {"recipe=block causal", "softcap=20", "recipe=strict_causal causal", "recipe=block+e5m2",
          "recipe=strict_causal+e5m2", "recipe=block causal softmax=direct",
          "softcap=20 softmax=direct", "recipe=block+int8 causal", "recipe=fp8 softcap=20",
          "recipe=strict_causal+int8 causal", "recipe=block+int8 causal softmax=direct",
          "recipe=fp8 softcap=20 softmax=direct", "precision=bf16 causal", "precision=fp16",
          "precision=bf16 softcap=20", "precision=fp16 softcap=20 causal"}) {
      expect_agrees(parse(std::string("sq70 sk200 hq2 hkv1 ") + dims + " " + kind));
    }
    // Pairs of thread blocks. Of 8 bits with no stage used twice: racecheck, which this test is for
    // as well, does not follow reads by a warp's lanes, __syncwarp and the arrival of one lane, and
    // reports the notes of a tile (shared.h).
    for (const char* kind :
         {"sk300 precision=bf16", "sk300 precision=fp16", "sk200", "sk200 softmax=direct",
          "sk200 recipe=block", "sk200 recipe=block softmax=direct"}) {
      expect_agrees(parse(std::string("sq200 hq2 hkv1 ") + dims + " " + kind));
    }
  }
  expect_agrees(parse("sq70 sk200 splits=2"));
  expect_agrees(parse("sq70 sk200 h2 splits=2 precision=bf16"));
}

/// Items that change hands (tile/relay.h), for memcheck; racecheck reports notes of a thread
/// block's third item as it does those of a tile.
TEST(AttentionGpu, ItemsThatChangeHandsAgree) {
  expect_agree({"sq64 sk700 hq140 hkv10 d64 recipe=block", "sq200 sk700 hq70 hkv10 precision=bf16",
                "sq200 sk999 hq70 hkv10 d256"});
}

const std::vector<int> kLengths = {1, 3, 63, 64, 65, 113, 127, 128, 129, 191, 192, 193, 799, 1023};

TEST(AttentionGpu, Lengths) {
  for (const int s : kLengths) {
    const std::string n = std::to_string(s);
    expect_agree({"s" + n + " h2 recipe=block", "s" + n + " h2 d64 causal",
                  "s" + n + " h2 recipe=fp8", "s" + n + " d64 causal recipe=block+int8",
                  "sq" + n + " sk300 d256 causal", "sq70 sk" + n + " d192 causal"});
  }
}

/// Of every precision.
const std::vector<std::string> kMasksHeadsAndLayouts = {"sq1 sk1000 causal",
                                                        "sq200 sk64 causal",
                                                        "sq8 sk4224 window=100,0",
                                                        "s500 window=64,64",
                                                        "s500 window=0,0",
                                                        "b3 s300 lens=300,130,0 causal",
                                                        "b2 sq100 sk600 lens=64,599 window=50,50",
                                                        "s300 hq8 hkv2 d64",
                                                        "s300 hq8 hkv1 causal",
                                                        "b2 s200 hq12 hkv3 d96",
                                                        "s300 h3 layout=bhsd",
                                                        "s300 h3 layout=packed causal",
                                                        "s300 d72 h2",
                                                        "s300 d40 h2 causal",
                                                        "s300 d80 h2",
                                                        "b65 s3 h2 d64",
                                                        "s300 scale=0.5",
                                                        "s300 softcap=5 causal"};

std::vector<std::string> with_masks_heads_and_layouts(std::vector<std::string> lines) {
  lines.insert(lines.end(), kMasksHeadsAndLayouts.begin(), kMasksHeadsAndLayouts.end());
  return lines;
}

TEST(AttentionGpu, MasksHeadsAndLayouts) {
  expect_agree(with_masks_heads_and_layouts(
      {"sq64 sk1000 causal", "s500 window=all,30", "s500 window=200,all", "s300 d160",
       "s300 d64 dv256", "s300 d256 dv64", "s300 d192 dv64", "s300 out=f32", "s300 out=f16 causal",
       "s300 in=f16", "s300 in=f32 d256"}));
}

TEST(AttentionGpu, SixteenBits) {
  std::vector<std::string> lines;
  for (const int s : kLengths) {
    const std::string n = std::to_string(s);
    for (const char* dims : {" h2", " h2 d64 causal", " h2 d256 causal", " h2 d192 dv128"}) {
      lines.push_back("s" + n + dims + " precision=bf16");
    }
    lines.push_back("sq70 sk" + n + " h2 d96 causal precision=fp16");
    lines.push_back("sq" + n + " sk300 h2 causal precision=fp16");
  }
  for (const std::string& line : with_masks_heads_and_layouts(
           {"s500 d64 window=all,30", "s500 d256 window=200,all", "b3 s300 d256 lens=1,130,299",
            "b2 s300 d64 lens=129,0", "s300 d160 h2", "s300 d64 dv256 h2", "s300 d256 dv64 h2",
            "s300 d192 dv64 h2", "s300 d128 dv72 h2", "s300 h2 out=f32", "s300 h2 out=f16 causal",
            "sq50 sk3000 h2 splits=4", "sq50 sk3000 h2 d256 splits=5 causal",
            "s1000 h2 dist=outlier", "s1000 h2 dist=channel", "s1000 h2 d64 dist=sink causal",
            "s1000 h2 dist=wide"})) {
    lines.push_back(line + " precision=bf16");
    lines.push_back(line + " precision=fp16");
  }
  expect_agree(lines);
}

/// Thread blocks take several items each, whose notes, queries and outputs share places in shared
/// memory; sections of heads under a mask, with empty slots (80 heads of 2048 rows in 16 bits: 16
/// heads and 8 slots) and without; tiles of rows that begin before the first row.
TEST(AttentionGpu, SeveralItemsABlock) {
  expect_agree({"b2 s900 h80",
                "b2 s900 h80 d64 out=f16",
                "s900 h80 d256",
                "s500 h70 d192 dv128",
                "b3 s700 h40 d96 out=f32",
                "b2 s2000 h40 causal",
                "b2 s1100 h80 d64 causal",
                "s2000 h40 d256 causal",
                "b2 s1400 h40 window=300,0 recipe=fp8",
                "b2 s700 hq60 hkv20 softcap=20 causal",
                "s1100 h80 recipe=strict_causal causal",
                "b2 s900 h80 precision=bf16",
                "b2 s900 h80 d64 precision=fp16",
                "s900 h80 d256 precision=bf16",
                "s500 h70 d192 precision=fp16",
                "b2 s2048 h40 causal precision=bf16",
                "s2048 h40 d256 causal precision=bf16",
                "b2 s1400 h40 d64 window=300,0 precision=bf16",
                "s900 h80 out=f32 precision=bf16",
                "b2 s700 hq60 hkv20 d256 softcap=20 causal precision=bf16"});
  // Items without key tiles between others; rows without keys; splits in sections.
  for (const char* tail : {"", " precision=bf16", " d256 precision=bf16", " recipe=fp8 d256"}) {
    expect_agree({std::string("b4 s700 h40 lens=700,0,130,1") + tail,
                  std::string("b2 sq900 sk300 h60 causal") + tail,
                  std::string("b2 s1100 h40 causal splits=3") + tail});
  }
}

/// Two thread blocks share key tiles where both have rows of their own and no mask tells them apart
/// (tile/cluster.cuh): with query heads that share K and V, lengths that end inside a tile, entries
/// without keys, splits of the keys.
TEST(AttentionGpu, PairsOfThreadBlocks) {
  for (const char* tail : {" precision=bf16", " d192 precision=fp16", " d192 dv128 precision=bf16",
                           " d256 precision=bf16", " d256 recipe=block", " d256"}) {
    std::vector<std::string> lines;
    for (const char* shape : {"sq129 sk1", "sq256 sk700 hq12 hkv3", "b2 sq1000 sk333 h40",
                              "b2 sq700 sk64 h3", "b4 s700 h40 lens=700,0,130,1",
                              "b2 sq250 sk900 h20 splits=3", "b2 sq1024 sk100 h2 lens=0,70"}) {
      lines.push_back(std::string(shape) + tail);
    }
    expect_agree(lines);
  }
}

TEST(AttentionGpu, RecipesAndStoredOperands) {
  for (const char* recipe :
       {"per_tensor", "per_head", "block", "fp8", "strict_causal", "block+e5m2", "fp8+e5m2",
        "per_tensor+int8", "default", "strict_causal+int8"}) {
    const std::string tail = std::string(" recipe=") + recipe;
    expect_agree({"s400 h2 causal" + tail, "sq100 sk700 hq4 hkv2 d64" + tail, "s300 d256" + tail,
                  "s400 h2 causal in=f8" + tail, "s300 hq4 hkv2 d64 in=f8" + tail});
  }
}

TEST(AttentionGpu, Distributions) {
  for (const char* dist : {"normal", "outlier", "channel", "sink", "wide", "uniform"}) {
    const std::string tail = std::string(" dist=") + dist;
    expect_agree({"s1000 h2" + tail, "s1000 h2 causal d64" + tail, "s700 d256" + tail,
                  "s1000 h2 recipe=fp8" + tail, "s700 d256 recipe=block+int8" + tail});
  }
}

TEST(AttentionGpu, ProblemFiles) {
  for (const char* name : {"shapes", "masks", "recipes", "distributions", "precisions"}) {
    for (Problem p :
         workload::read_problem_file(std::string(OCTAVO_PROBLEMS) + "/" + name + ".txt")) {
      expect_agrees(for_sm90(p));
    }
  }
}

TEST(AttentionGpu, RandomProblems) {
  int ran = 0;
  for (std::uint64_t i = 0; ran < 300; ++i) {
    ran += expect_agrees(for_sm90(workload::random_problem(20261129, i))) ? 1 : 0;
    ASSERT_LT(i, 400u) << "too many were refused";
  }
}

/// The error against double precision is the emulation's, within 3 % of itself.
TEST(AttentionGpu, AccuracyIsTheEmulations) {
  for (const char* dist : {"normal", "outlier", "channel", "sink", "wide"}) {
    for (const char* how : {"", " softmax=direct", " recipe=fp8", " recipe=fp8 softmax=direct",
                            " precision=bf16", " precision=fp16 out=f32"}) {
      const Problem p = parse(std::string("s1500 h2 dist=") + dist + how);
      const auto gpu = workload::verify_problem(p, "sm90", "reference");
      const auto cpu = workload::verify_problem(p, "emulate", "reference");
      EXPECT_NEAR(gpu.out.relative_l2 / cpu.out.relative_l2, 1.0, 0.03) << dist << how;
    }
  }
}

/// Uniform weights over values with a mean: an accumulator of 14 bits that is not emptied loses
/// more the more keys there are. V in {0.5, 1, 1.5}, which E4M3 holds.
TEST(AttentionGpu, AccumulatorIsFlatInKeyLength) {
  for (const std::int64_t sk : {1024, 8192, 65536, 131072}) {
    constexpr std::int64_t kSq = 64, kD = 128;
    std::vector<std::uint16_t> q(kSq * kD, 0), k(static_cast<std::size_t>(sk * kD)), v(k.size());
    std::vector<double> mean(kD, 0.0);
    std::uint64_t state = 7;
    for (std::size_t i = 0; i < k.size(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const float value = 1.75f / static_cast<float>(1 << (state >> 40) % 3);
      k[i] = float_to_bf16(static_cast<float>(state >> 60) - 7.5f);
      v[i] = float_to_bf16(value);
      mean[i % kD] += static_cast<double>(value) / static_cast<double>(sk);
    }
    std::vector<float> out(kSq * kD);
    AttentionParams params;
    params.q = contiguous(q.data(), DType::bf16, {1, kSq, 1, kD});
    params.k = contiguous(k.data(), DType::bf16, {1, sk, 1, kD});
    params.v = contiguous(v.data(), DType::bf16, {1, sk, 1, kD});
    params.out = contiguous(out.data(), DType::f32, {1, kSq, 1, kD});
    params.recipe = Recipe::block();
    params.engine = "sm90";
    attention_forward(params);
    double worst = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(out[i]) / mean[i % kD] - 1));
    }
    EXPECT_LT(worst, 1e-3) << "sk " << sk;
  }
}

/// One call's tensors in device memory.
class Call {
 public:
  explicit Call(const Problem& p) : problem(p), inputs(workload::generate(p)) {
    params.q = upload(inputs.q);
    params.k = upload(inputs.k);
    params.v = upload(inputs.v);
    params.precision = p.precision;
    if (p.precision == Precision::fp8) params.recipe = p.recipe;
    params.mask = p.mask;
    params.softcap = p.softcap;
    params.key_lengths = p.lens;
    params.num_splits = p.splits;
    out_bytes = static_cast<std::size_t>(p.b * p.sq * p.hq * p.dv) * size_of(p.out);
    out = std::make_unique<DeviceBytes>(out_bytes);
    params.out = contiguous(out->get(), p.out, {p.b, p.sq, p.hq, p.dv}, {Device::Kind::cuda, 0});
    bytes = attention_workspace_bytes(params);
    workspace = std::make_unique<DeviceBytes>(bytes);
  }
  TensorView upload(const TensorView& x) {
    const std::size_t size = static_cast<std::size_t>(x.numel()) * size_of(x.dtype);
    memory.push_back(std::make_unique<DeviceBytes>(size));
    memory.back()->upload(x.data, size);
    TensorView on_device = x;
    on_device.data = memory.back()->get();
    on_device.device = {Device::Kind::cuda, 0};
    return on_device;
  }
  void run(cudaStream_t stream, const std::int32_t* lengths = nullptr) const {
    attention_on_device(params, workspace->get(), bytes, stream, lengths);
  }
  std::vector<std::uint8_t> result() const {
    sm90::check(cudaDeviceSynchronize(), "running the call");
    return download(static_cast<const std::uint8_t*>(out->get()),
                    static_cast<std::int64_t>(out_bytes));
  }
  QuantizeParams operands() const {
    QuantizeParams x;
    x.q = params.q;
    x.k = params.k;
    x.v = params.v;
    x.recipe = *params.recipe;
    return x;
  }

  Problem problem;
  workload::Inputs inputs;
  AttentionParams params;
  std::vector<std::unique_ptr<DeviceBytes>> memory;
  std::unique_ptr<DeviceBytes> out, workspace;
  std::size_t out_bytes = 0, bytes = 0;
};

/// An engine's output for the same call, in the output type.
std::vector<std::uint8_t> output_of(const char* engine, const Problem& p,
                                    const workload::Inputs& inputs) {
  const workload::RunResult ran = workload::run_problem(p, inputs, {engine, 0, {}});
  const auto* data = static_cast<const std::uint8_t*>(ran.out.data);
  return {data, data + static_cast<std::size_t>(ran.out.numel()) * size_of(p.out)};
}
std::vector<std::uint8_t> emulated(const Problem& p, const workload::Inputs& inputs) {
  return output_of("emulate", p, inputs);
}

/// In 16 bits K and V are read where they are: what stands past an entry's keys must not matter.
TEST(AttentionGpu, SixteenBitsPastTheKeysMayBeAnything) {
  for (const char* line : {"b3 s300 hq4 hkv2 lens=300,130,1 precision=bf16",
                           "b2 s300 h2 d64 causal lens=191,64 precision=fp16",
                           "b3 s200 h2 d256 lens=65,190,0 precision=bf16",
                           "b2 s300 h2 d96 lens=129,299 splits=2 precision=fp16"}) {
    const Problem p = parse(line);
    const workload::Inputs inputs = workload::generate(p);
    const auto want = output_of("sm90", p, inputs);
    for (const TensorView* x : {&inputs.k, &inputs.v}) {
      for (std::int64_t b = 0; b < p.b; ++b) {
        for (std::int64_t s = p.lens[static_cast<std::size_t>(b)]; s < p.sk; ++s) {
          const std::int64_t row = x->shape[2] * x->shape[3];
          auto* values = static_cast<std::uint16_t*>(x->data) + (b * p.sk + s) * row;
          std::fill(values, values + row, std::uint16_t{0x7fff});  // NaN in both types
        }
      }
    }
    EXPECT_EQ(output_of("sm90", p, inputs), want) << line;
  }
}

double relative_l2(const std::vector<std::uint8_t>& got, const std::vector<std::uint8_t>& want) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i + 1 < got.size(); i += 2) {
    const auto at = [i](const std::vector<std::uint8_t>& x) {
      return static_cast<double>(bf16_to_float(static_cast<std::uint16_t>(x[i] | x[i + 1] << 8)));
    };
    difference += (at(got) - at(want)) * (at(got) - at(want));
    norm += at(want) * at(want);
  }
  return std::sqrt(difference / norm);
}

constexpr double kSame = 2e-3;  // emulation_bounds

void expect_graph_replays(const std::string& how) {
  Call call(parse("s500 h2 causal" + how));
  call.run(nullptr);  // loads the kernels
  sm90::check(cudaDeviceSynchronize(), "first run");
  const CapturedGraph graph([&](cudaStream_t stream) { call.run(stream); });
  for (const char* line : {"s500 h2 causal seed=3", "s500 h2 causal dist=wide seed=4"}) {
    const Problem p = parse(line + how);
    const workload::Inputs inputs = workload::generate(p);
    const TensorView* views[] = {&inputs.q, &inputs.k, &inputs.v};
    for (std::size_t i = 0; i < 3; ++i) {
      call.memory[i]->upload(views[i]->data, static_cast<std::size_t>(views[i]->numel()) * 2);
    }
    call.out->poison();
    graph.replay();
    EXPECT_LT(relative_l2(call.result(), emulated(p, inputs)), kSame) << line;
    call.out->expect_guard_untouched();
    call.workspace->expect_guard_untouched();
  }
}

TEST(AttentionGpu, GraphReplaysWithNewContents) {
  expect_graph_replays("");
  expect_graph_replays(" precision=bf16");
}

void expect_lengths_from_device(const std::string& how) {
  Call call(parse("b2 sq100 sk400 h2" + how));
  DeviceBytes lengths(8);
  for (const std::vector<std::int32_t>& values : {std::vector<std::int32_t>{400, 130}, {1, 399}}) {
    lengths.upload(values.data(), 8);
    call.run(nullptr, static_cast<const std::int32_t*>(lengths.get()));
    Problem p = call.problem;
    p.lens = {values[0], values[1]};
    EXPECT_LT(relative_l2(call.result(), emulated(p, call.inputs)), kSame);
  }
}

/// The output of a call in rows of `pitch` elements, the first `shift` elements into memory full of
/// 0xa5.
std::vector<std::uint8_t> output_within(const Call& call, std::int64_t pitch, std::int64_t shift) {
  const Problem& p = call.problem;
  const auto element = static_cast<std::int64_t>(size_of(p.out));
  const std::vector<std::uint8_t> filling(
      static_cast<std::size_t>((p.b * p.sq * p.hq * pitch + shift) * element), 0xa5);
  DeviceBytes memory(filling.size());
  memory.upload(filling.data(), filling.size());
  AttentionParams params = call.params;
  params.out.data = static_cast<std::byte*>(memory.get()) + shift * element;
  params.out.stride = {p.sq * p.hq * pitch, p.hq * pitch, pitch, 1};
  attention_on_device(params, call.workspace->get(), call.bytes, nullptr);
  sm90::check(cudaDeviceSynchronize(), "running the call");
  return download(static_cast<const std::uint8_t*>(memory.get()),
                  static_cast<std::int64_t>(filling.size()));
}

/// A part of another tensor, on 16-byte boundaries or off them: the bits of a tensor of its own,
/// and nothing beside them.
TEST(AttentionGpu, OutputsWithinOtherTensors) {
  for (const char* dims : {"", " d64", " d96", " d192 dv128", " d256", " d128 dv72"}) {
    for (const char* how : {" recipe=block", " recipe=block softmax=direct", " precision=bf16",
                            " precision=fp16 out=f16", " recipe=block out=f32"}) {
      const Call call(parse(std::string("b2 s500 h3 causal") + dims + how));
      call.run(nullptr);
      const std::vector<std::uint8_t> own = call.result();
      const Problem& p = call.problem;
      const auto element = static_cast<std::int64_t>(size_of(p.out));
      const std::int64_t pitch = p.dv + 8, row_bytes = p.dv * element;
      for (const std::int64_t shift : {0, 1}) {
        const std::vector<std::uint8_t> got = output_within(call, pitch, shift);
        std::vector<std::uint8_t> want(got.size(), 0xa5);
        for (std::int64_t row = 0; row < p.b * p.sq * p.hq; ++row) {
          std::copy_n(own.begin() + row * row_bytes, row_bytes,
                      want.begin() + (shift + row * pitch) * element);
        }
        EXPECT_TRUE(got == want) << workload::format_problem(p) << ", " << shift << " off";
      }
    }
  }
}

TEST(AttentionGpu, KeyLengthsFromDeviceMemory) {
  expect_lengths_from_device("");
  expect_lengths_from_device(" precision=bf16");
}

/// Ten thousand launches of mixed shapes on two streams: the forward pass is deterministic.
TEST(AttentionGpu, TenThousandLaunchesAreBitEqual) {
  std::vector<std::unique_ptr<Call>> calls;
  for (const char* line : {"s300 h4 causal", "b2 s129 h3 d64 recipe=block", "sq70 sk1000 h2 d256",
                           "s200 h2 recipe=strict_causal causal", "s700 h3 precision=bf16 causal",
                           "b2 s300 h2 d256 precision=fp16"}) {
    for (int stream = 0; stream < 2; ++stream) calls.push_back(std::make_unique<Call>(parse(line)));
  }
  cudaStream_t streams[2];
  for (auto& stream : streams) {
    sm90::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  }
  std::vector<std::vector<std::uint8_t>> first;
  for (int launch = 0; launch < 10000; ++launch) {
    calls[static_cast<std::size_t>(launch) % calls.size()]->run(streams[launch % 2]);
    if ((launch + 1) % 1000 != 0) continue;
    std::vector<std::vector<std::uint8_t>> now;
    for (const auto& call : calls) now.push_back(call->result());
    if (first.empty()) first = now;
    ASSERT_EQ(first, now) << "after " << launch + 1 << " launches";
  }
  for (std::size_t i = 0; i < calls.size(); i += 2) EXPECT_EQ(first[i], first[i + 1]);
  for (auto& stream : streams) cudaStreamDestroy(stream);
}

/// A cache of 256 keys of which 130 count; the rest are NaN bytes, in K, V and their descales.
TEST(AttentionGpu, NanBytesBehindTheLastKeyAreNotSeen) {
  for (const char* line : {"sq100 sk256 h2 lens=130 in=f8 recipe=block",
                           "sq100 sk256 h2 lens=130 in=f8 recipe=strict_causal"}) {
    const Problem p = parse(line);
    workload::Inputs inputs = workload::generate(p);
    const std::vector<std::uint8_t> want = emulated(p, inputs);
    for (const TensorView& x : {inputs.k, inputs.v}) {
      for (std::int64_t s = 130; s < 256; ++s) {
        std::memset(static_cast<std::byte*>(x.data) + s * x.stride[1], 0x7f,
                    static_cast<std::size_t>(x.shape[2] * x.shape[3]));
      }
    }
    EXPECT_LT(relative_l2(output_of("sm90", p, inputs), want), kSame) << line;
  }
}

/// NaN exactly where the emulation has it, from one element of Q or K.
TEST(AttentionGpu, NanSpreadsAsInTheEmulation) {
  for (const char* how : {"", " softmax=direct", " softcap=20", " softcap=20 softmax=direct",
                          " recipe=strict_causal+int8", " recipe=fp8", " recipe=block+int8"}) {
    const Problem p = parse(std::string("s300 h2 causal out=f32") + how);
    for (const bool in_k : {false, true}) {
      workload::Inputs inputs = workload::generate(p);
      const TensorView& x = in_k ? inputs.k : inputs.q;
      static_cast<std::uint16_t*>(x.data)[130 * x.stride[1] + x.stride[2] + 5] = 0x7fc0;
      const std::vector<std::uint8_t> got = output_of("sm90", p, inputs),
                                      want = emulated(p, inputs);
      ASSERT_EQ(got.size(), want.size());
      std::size_t nans = 0;
      for (std::size_t i = 0; i < got.size(); i += 4) {
        float a, b;
        std::memcpy(&a, got.data() + i, 4);
        std::memcpy(&b, want.data() + i, 4);
        ASSERT_EQ(std::isnan(a), std::isnan(b))
            << how << (in_k ? " k" : " q") << " element " << i / 4;
        nans += std::isnan(a);
      }
      EXPECT_GT(nans, 0u);
      EXPECT_LT(nans, got.size() / 4);
    }
  }
}

/// Factors up to the largest beside INT8's zero, and beyond (core/int8.h).
TEST(AttentionGpu, HotScores) {
  expect_agree({"s300 h2 scale=0.2", "s300 h2 scale=0.6 d64 causal", "s300 h2 scale=1.5",
                "s300 scale=4 d256", "s300 h2 scale=20 causal", "s300 d64 scale=1000"});
}

/// Mistakes that a kernel could make must break the comparison that the tests above rely on.
class Mutation : public testing::Test {
 protected:
  Mutation() : call_(parse("s512 h2 recipe=block")) {
    const QuantizeParams operands = call_.operands();
    bytes_ = quantize_workspace_bytes(operands);
    workspace_ = std::make_unique<DeviceBytes>(bytes_);
    qkv_ = quantize_on_device(operands, workspace_->get(), bytes_, nullptr);
    want_ = emulated(call_.problem, call_.inputs);
  }
  double difference() {
    AttentionParams params;
    params.out = call_.params.out;
    params.mask = call_.params.mask;
    attention_on_device(params, qkv_, nullptr);
    return relative_l2(call_.result(), want_);
  }
  void set(float* to, float value) {
    sm90::check(cudaMemcpy(to, &value, 4, cudaMemcpyHostToDevice), "setting a descale");
  }
  void swap(std::uint8_t* a, std::uint8_t* b, std::size_t n) {
    const auto x = download(a, static_cast<std::int64_t>(n)),
               y = download(b, static_cast<std::int64_t>(n));
    sm90::check(cudaMemcpy(a, y.data(), n, cudaMemcpyHostToDevice), "swapping");
    sm90::check(cudaMemcpy(b, x.data(), n, cudaMemcpyHostToDevice), "swapping");
  }

  Call call_;
  std::size_t bytes_ = 0;
  std::unique_ptr<DeviceBytes> workspace_;
  DeviceQkv qkv_;
  std::vector<std::uint8_t> want_;
};

TEST_F(Mutation, NoneAgrees) { EXPECT_LT(difference(), kSame); }

TEST_F(Mutation, DroppedDescaleOfV) {
  set(qkv_.v.descale + 1, 1.0f);
  EXPECT_GT(difference(), 10 * kSame);
}

TEST_F(Mutation, DroppedDescaleOfK) {
  set(qkv_.k.descale + 2, 1.0f);
  EXPECT_GT(difference(), 10 * kSame);
}

TEST_F(Mutation, DoubledDescaleOfQ) {
  const std::vector<float> q = download(static_cast<const float*>(qkv_.q.descale), 1);
  set(qkv_.q.descale, 2 * q[0]);
  EXPECT_GT(difference(), 10 * kSame);
}

TEST_F(Mutation, SwappedTilesOfK) {
  swap(qkv_.k.codes, qkv_.k.codes + 128 * 128, 128 * 128);
  EXPECT_GT(difference(), 10 * kSame);
}

TEST_F(Mutation, SkippedPromotion) {
  // What a kernel without promotion would compute is what the emulation computes without it.
  Problem p = parse("sq64 sk16384 dist=uniform recipe=block");
  const workload::Inputs inputs = workload::generate(p);
  p.promote = 0;
  const std::vector<std::uint8_t> unpromoted = emulated(p, inputs);
  p.promote = 1;
  EXPECT_GT(relative_l2(output_of("sm90", p, inputs), unpromoted), 2 * kSame);
}

TEST(AttentionGpu, Refusals) {
  Call call(parse("s100"));
  expect_error("workspace has 0 bytes",
               [&] { attention_on_device(call.params, nullptr, 0, nullptr); });
  AttentionParams params = call.params;
  params.softmax = SoftmaxPath::direct;
  params.recipe = parse_recipe("block+e5m2");
  expect_error("softmax is direct; must be exact where k and v are E5M2",
               [&] { attention_on_device(params, call.workspace->get(), call.bytes, nullptr); });
  params = call.params;
  params.promote_every = 4;
  expect_error("promote_every is 4",
               [&] { attention_on_device(params, call.workspace->get(), call.bytes, nullptr); });
  expect_error("must be left out", [&] { attention_on_device(call.params, DeviceQkv{}, nullptr); });
}

TEST(AttentionGpu, SplitKeys) {
  expect_agree({"sq64 sk4096 splits=4 recipe=block", "sq1 sk8192 hq8 hkv2 splits=16",
                "s1000 h2 causal splits=3 d64", "sq100 sk700 splits=2 recipe=strict_causal causal",
                "b3 sq70 sk600 lens=600,130,0 splits=5", "s500 window=100,50 splits=4 d256",
                "s300 softcap=20 splits=2 out=f16", "sq3 sk50 splits=7 out=f32",
                "s400 hq4 hkv2 d192 dv128 splits=2 layout=bhsd", "s300 h2 splits=2 in=f8"});
}

/// Both engines on inputs that `change` has been at.
void expect_agree_after(const Problem& p, const std::function<void(workload::Inputs&)>& change) {
  workload::Inputs inputs = workload::generate(p);
  change(inputs);
  EXPECT_LT(relative_l2(output_of("sm90", p, inputs), emulated(p, inputs)), kSame);
}

std::uint16_t& bf16_at(const TensorView& x, std::int64_t s, std::int64_t c) {
  return static_cast<std::uint16_t*>(x.data)[s * x.stride[1] + c];
}

/// O is kept in units of V's descale. Falls of less than 2^80 each that come to more in sum: tiles
/// are visited from the last, N(0, 1), over one 2^-31 times as large to zeros.
TEST(AttentionGpu, UnitsOfVThatFallInSteps) {
  for (const char* line : {"sq64 sk384 recipe=block", "sq64 sk384 d256 recipe=block"}) {
    expect_agree_after(parse(line), [](workload::Inputs& inputs) {
      for (std::int64_t s = 0; s < 256; ++s) {
        for (std::int64_t c = 0; c < inputs.v.shape[3]; ++c) {
          std::uint16_t& x = bf16_at(inputs.v, s, c);
          x = s < 128 ? 0 : float_to_bf16(bf16_to_float(x) * 0x1p-31f);
        }
      }
    });
  }
}

/// The same of a row's units where descales of V are folded into P: scores of the tiles lie 0, 60
/// and 112 octaves below the maximum.
TEST(AttentionGpu, UnitsOfWeightsThatFallInSteps) {
  constexpr float kLevels[] = {-77.6f, -41.6f, 0.0f};  // 112 ln 2, 60 ln 2
  expect_agree_after(parse("sq64 sk384 recipe=strict_causal"), [&](workload::Inputs& inputs) {
    for (std::int64_t c = 0; c < inputs.q.shape[3]; ++c) {
      for (std::int64_t s = 0; s < 64; ++s) {
        bf16_at(inputs.q, s, c) = float_to_bf16(c == 0 ? 11.3125f : 0.0f);  // about sqrt(128)
      }
      for (std::int64_t s = 0; s < 384; ++s) {
        bf16_at(inputs.k, s, c) = float_to_bf16(c == 0 ? kLevels[s / 128] : 0.0f);
      }
    }
  });
}

/// No batch entries, queries or heads: nothing to do. No keys: O = 0, LSE = -inf.
TEST(AttentionGpu, EmptyTensorsEnd) {
  Call call(parse("b2 sq70 sk130 h2 recipe=block"));
  for (const int splits : {1, 3}) {
    for (const std::size_t axis : {0u, 1u, 2u, 4u}) {
      AttentionParams params = call.params;
      params.num_splits = splits;
      if (axis == 4) {
        params.k.shape[1] = params.v.shape[1] = 0;
      } else {
        params.q.shape[axis] = params.out.shape[axis] = 0;
        if (axis == 0) params.k.shape[0] = params.v.shape[0] = 0;
      }
      const std::size_t bytes = attention_workspace_bytes(params);
      const DeviceBytes workspace(bytes);
      call.out->poison();
      attention_on_device(params, workspace.get(), bytes, nullptr);
      for (const std::uint8_t byte : call.result()) ASSERT_EQ(byte, axis == 4 ? 0 : 0xff);
    }
  }
}

/// Operands quantised before, cut in two: the emulation's merge of two, and no run without room.
TEST(AttentionGpu, SplitKeysOfQuantisedOperands) {
  Call call(parse("sq64 sk2000 h2 splits=2"));
  const QuantizeParams operands = call.operands();
  const std::size_t quantised_bytes = quantize_workspace_bytes(operands);
  const DeviceBytes quantised(quantised_bytes);
  const DeviceQkv qkv = quantize_on_device(operands, quantised.get(), quantised_bytes, nullptr);
  AttentionParams params;
  params.out = call.params.out;
  params.num_splits = 2;
  const std::size_t bytes = attention_workspace_bytes(params, qkv);
  const DeviceBytes workspace(bytes);
  expect_error("workspace has 0 bytes", [&] { attention_on_device(params, qkv, nullptr); });
  attention_on_device(params, qkv, workspace.get(), bytes, nullptr);
  EXPECT_LT(relative_l2(call.result(), emulated(call.problem, call.inputs)), kSame);
  workspace.expect_guard_untouched();
}

/// O and LSE of one call on operands that lie there: bits.
struct Bits {
  std::vector<std::uint8_t> out;
  std::vector<float> lse;
  friend bool operator==(const Bits& a, const Bits& b) {
    return a.out == b.out &&
           std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
  }
};

/// Items that change hands (tile/relay.h), where there is memory for it, and those that do not.
class RelayCall {
 public:
  explicit RelayCall(const Problem& p)
      : call_(p), rows_(p.b * p.hq * p.sq), lse_(static_cast<std::size_t>(rows_) * sizeof(float)) {
    params_ = call_.params;
    params_.lse = contiguous(lse_.get(), DType::f32, {p.b, p.hq, p.sq}, {Device::Kind::cuda, 0});
    params_.softmax = p.softmax;
    if (p.precision != Precision::fp8) {
      bytes_ = attention_workspace_bytes(params_);
    } else {
      const std::size_t quantised = quantize_workspace_bytes(call_.operands());
      quantised_ = std::make_unique<DeviceBytes>(quantised);
      qkv_ = quantize_on_device(call_.operands(), quantised_->get(), quantised, nullptr);
      params_.q = params_.k = params_.v = {};
      params_.recipe.reset();
      bytes_ = attention_workspace_bytes(params_, qkv_);
    }
    batons_ = std::make_unique<DeviceBytes>(bytes_);
  }
  /// Of the workspace that a relay takes; with fewer there is none.
  std::size_t bytes() const { return bytes_; }

  void run(cudaStream_t stream, std::size_t bytes) const {
    void* workspace = bytes > 0 ? batons_->get() : nullptr;
    if (quantised_ == nullptr) {
      attention_on_device(params_, workspace, bytes, stream);
    } else {
      attention_on_device(params_, qkv_, workspace, bytes, stream);
    }
  }
  Bits bits(std::size_t bytes) const {
    forget();
    run(nullptr, bytes);
    return result();
  }
  Bits result() const {
    Bits bits{call_.result(), download(static_cast<const float*>(lse_.get()), rows_)};
    batons_->expect_guard_untouched();
    return bits;
  }
  void forget() const {
    call_.out->poison();
    lse_.poison();
    sm90::check(cudaDeviceSynchronize(), "poisoning");
  }

 private:
  Call call_;
  std::int64_t rows_;
  DeviceBytes lse_;
  AttentionParams params_;
  std::unique_ptr<DeviceBytes> quantised_, batons_;
  DeviceQkv qkv_;
  std::size_t bytes_ = 0;
};

/// Heads of so many row tiles each that there are eight items more than the device works on at a
/// time.
std::string heads_of(int row_tiles) {
  return "hq" + std::to_string((sm90::multiprocessors() + 8) / row_tiles) + " hkv1 ";
}

TEST(AttentionGpu, ItemsThatChangeHandsAreBitEqual) {
  std::vector<std::string> lines;
  for (const char* dims : {"d64", "d128", "d192 dv128", "d192", "d256"}) {
    for (const char* kind : {"recipe=block", "recipe=block softmax=direct", "recipe=block+int8",
                             "recipe=block+int8 softmax=direct", "", "softmax=direct out=f32"}) {
      lines.push_back(std::string(dims) + " " + kind);
    }
  }
  for (const char* kind : {"precision=bf16", "precision=fp16 out=f16", "precision=bf16 out=f32"}) {
    lines.emplace_back(kind);
  }
  for (const std::string& line : lines) {
    // On 132 multiprocessors 140 items, or 70 of pairs of thread blocks.
    for (const std::string& shape : {"sq200 sk999 " + heads_of(2), "sq100 sk999 " + heads_of(1)}) {
      const RelayCall call(parse(shape + line));
      ASSERT_GT(call.bytes(), 0U) << shape << line << ": no relay";
      const Bits whole = call.bits(0);
      // The batons of a call are in the memory of the next: they must not be taken for its own.
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(call.bits(call.bytes()) == whole) << shape << line << ", call " << i;
      }
    }
  }
}

TEST(AttentionGpu, ARelayCanBeReplayed) {
  for (const char* kind :
       {"recipe=block softmax=direct", "d256 softmax=direct", "precision=bf16"}) {
    const RelayCall call(parse("sq200 sk999 " + heads_of(2) + kind));
    ASSERT_GT(call.bytes(), 0U) << kind << ": no relay";
    const Bits whole = call.bits(0);
    const CapturedGraph graph([&](cudaStream_t stream) { call.run(stream, call.bytes()); });
    for (int i = 0; i < 20; ++i) {
      call.forget();
      graph.replay();
      EXPECT_TRUE(call.result() == whole) << kind << ", replay " << i;
    }
  }
}

TEST(AttentionGpu, NoRelayWhereItemsDifferOrThereIsNoRoom) {
  const std::string shape = "sq200 sk999 " + heads_of(2);
  for (const char* kind :
       {"recipe=block causal", "recipe=block window=100,100", "recipe=block softcap=20",
        "b2 recipe=block lens=999,700", "precision=bf16 causal"}) {
    EXPECT_EQ(RelayCall(parse(shape + kind)).bytes(), 0U) << kind;
  }
  const RelayCall call(parse(shape + "recipe=block"));
  ASSERT_GT(call.bytes(), 0U);
  EXPECT_TRUE(call.bits(call.bytes() - 1) == call.bits(0));
}

/// Many short batch entries: offsets beyond 2^31 bytes of scores never exist, but b * h * s does.
TEST(AttentionGpu, ManyBatchEntries) { expect_agrees(parse("b8300 s1 h16 d128 recipe=block")); }

/// K and V of more than 2^32 elements, of which only the last head of the last batch entry is no
/// NaN: one offset in 32 bits, and its output is NaN or another's.
TEST(AttentionGpu, TensorsOfMoreThan2To32Elements) {
  constexpr std::int64_t kB = 64, kH = 128, kD = 128, kSq = 64, kSk = 4096;
  static_assert(kB * kSk * kH * kD >= std::int64_t{1} << 32);
  const Problem head = parse("sq64 sk4096 recipe=block");
  const workload::Inputs inputs = workload::generate(head);
  std::vector<std::unique_ptr<DeviceBytes>> memory;
  const auto place = [&](const TensorView& x, std::int64_t rows) {
    memory.push_back(
        std::make_unique<DeviceBytes>(static_cast<std::size_t>(kB * rows * kH * kD) * 2));
    TensorView all =
        contiguous(memory.back()->get(), DType::bf16, {kB, rows, kH, kD}, {Device::Kind::cuda, 0});
    const std::int64_t last = (kB - 1) * all.stride[0] + (kH - 1) * all.stride[2];
    if (x.present()) {
      sm90::check(
          cudaMemcpy2D(static_cast<std::uint16_t*>(all.data) + last, kH * kD * 2, x.data, kD * 2,
                       kD * 2, static_cast<std::size_t>(rows), cudaMemcpyHostToDevice),
          "uploading the last head");
    }
    return all;
  };
  AttentionParams params;
  params.q = place(inputs.q, kSq);
  params.k = place(inputs.k, kSk);
  params.v = place(inputs.v, kSk);
  params.out = place({}, kSq);
  params.recipe = head.recipe;
  const std::size_t bytes = attention_workspace_bytes(params);
  const DeviceBytes workspace(bytes);
  attention_on_device(params, workspace.get(), bytes, nullptr);
  std::vector<std::uint8_t> got(static_cast<std::size_t>(kSq * kD) * 2);
  const std::int64_t last = (kB - 1) * params.out.stride[0] + (kH - 1) * params.out.stride[2];
  sm90::check(
      cudaMemcpy2D(got.data(), kD * 2, static_cast<std::uint16_t*>(params.out.data) + last,
                   kH * kD * 2, kD * 2, static_cast<std::size_t>(kSq), cudaMemcpyDeviceToHost),
      "downloading the last head");
  EXPECT_LT(relative_l2(got, emulated(head, inputs)), kSame);
  memory.back()->expect_guard_untouched();
}

TEST(AttentionGpu, LongKeys) {
  expect_agree({"sq64 sk163840 dist=outlier", "sq1 sk262144 d64 recipe=block"});
}

}  // namespace
}  // namespace octavo::test
