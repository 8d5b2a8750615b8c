// SPDX-License-Identifier: Apache-2.0
// How fast the Hopper forward pass is: the kernel alone on quantised operands, and end to end from
// 16 bits to 16 bits; with precision=bf16 the two are one. Operands are N(0, 1), cut out of one
// pool larger than the L2 cache.
#include "bench_attention.h"

#include "octavo/error.h"

#ifndef OCTAVO_WITH_CUDA

namespace octavo::cli {

int bench_attention(std::vector<workload::Problem>, int, const std::optional<std::string>&) {
  throw Error(ErrorCode::unsupported, "bench gpu: this octavo was built without CUDA");
}

}  // namespace octavo::cli

#else

#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "gpu_timing.h"
#include "octavo/cuda.h"
#include "octavo/version.h"
#include "output.h"
#include "table.h"
#include "workload/generate.h"

namespace octavo::cli {
namespace {

/// The setting of the FlashAttention papers.
std::vector<workload::Problem> default_problems() {
  constexpr int kTokens = 16384, kHidden = 2048;
  std::vector<workload::Problem> problems;
  for (const int d : {64, 128, 256}) {
    for (const char* mask : {"", " causal"}) {
      for (int s = 512; s <= kTokens; s *= 2) {
        problems.push_back(workload::parse_problem(
            "b" + std::to_string(kTokens / s) + " s" + std::to_string(s) + " h" +
            std::to_string(kHidden / d) + " d" + std::to_string(d) + " recipe=block" + mask));
      }
    }
  }
  return problems;
}

/// N(0, 1) in device memory, from which operands are cut.
class Pool {
 public:
  explicit Pool(std::int64_t elements) {
    workload::Problem p = workload::parse_problem("sq1 sk1 d256 dist=normal");
    p.sq = p.sk = elements / 768 + 1;
    const workload::Inputs inputs = workload::generate(p);
    memory_ = allocate(3 * p.sq * 512);
    std::int64_t at = 0;
    for (const TensorView* x : {&inputs.q, &inputs.k, &inputs.v}) {
      const std::int64_t bytes = x->numel() * 2;
      check(cudaMemcpy(static_cast<std::byte*>(memory_.get()) + at, x->data,
                       static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice),
            "uploading");
      at += bytes;
    }
  }
  TensorView cut(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) {
    TensorView x = contiguous(static_cast<std::byte*>(memory_.get()) + at_, DType::bf16,
                              {b, s, h, d}, {Device::Kind::cuda, 0});
    at_ += x.numel() * 2;
    return x;
  }
  void rewind() { at_ = 0; }

 private:
  Memory memory_;
  std::int64_t at_ = 0;
};

std::int64_t elements(const workload::Problem& p) {
  return p.b * (p.sq * p.hq * p.d + p.sk * p.hkv * (p.d + p.dv));
}

struct Timing {
  std::string problem;
  double flop = 0;
  RunTime kernel, end_to_end;
  double tflops(const RunTime& time) const { return flop / time.us * 1e-6; }
};

/// What the benchmark would not do, although the problem asks for it.
void require_timed(const workload::Problem& p) {
  const workload::Problem plain;
  const char* what = p.precision == Precision::fp16 ? "precision=fp16"
                     : p.in != plain.in             ? "in"
                     : p.acc != plain.acc           ? "acc"
                     : p.promote != plain.promote   ? "promote"
                                                    : nullptr;
  if (what == nullptr) return;
  throw Error(ErrorCode::invalid_argument,
              "bench gpu: " + workload::format_problem(p) + ": " + what + " must be left out");
}

AttentionParams params_of(const workload::Problem& p) {
  AttentionParams params;
  params.num_splits = p.splits;
  params.mask = p.mask;
  params.softcap = p.softcap;
  params.softmax = p.softmax;
  params.key_lengths = p.lens;
  if (p.scale) params.sm_scale = *p.scale;
  return params;
}

/// The kernel alone, on operands that have been quantised.
RunTime time_quantised(const workload::Problem& p, const AttentionParams& whole,
                       cudaStream_t stream, int reps) {
  QuantizeParams operands;
  operands.q = whole.q;
  operands.k = whole.k;
  operands.v = whole.v;
  operands.recipe = p.recipe;
  operands.key_lengths = p.lens;
  const std::size_t quantised_bytes = quantize_workspace_bytes(operands);
  const Memory quantised = allocate(static_cast<std::int64_t>(quantised_bytes));
  const DeviceQkv qkv = quantize_on_device(operands, quantised.get(), quantised_bytes, stream);
  AttentionParams kernel = params_of(p);
  kernel.out = whole.out;
  const std::size_t part_bytes = attention_workspace_bytes(kernel, qkv);
  const Memory parts = allocate(static_cast<std::int64_t>(part_bytes));
  return time_runs(stream, reps,
                   [&] { attention_on_device(kernel, qkv, parts.get(), part_bytes, stream); });
}

Timing time_problem(const workload::Problem& p, Pool& pool, cudaStream_t stream, int reps) {
  require_timed(p);
  pool.rewind();
  const bool fp8 = p.precision == Precision::fp8;
  const Memory out = allocate(p.b * p.sq * p.hq * p.dv * static_cast<std::int64_t>(size_of(p.out)));
  AttentionParams whole = params_of(p);
  whole.q = pool.cut(p.b, p.sq, p.hq, p.d);
  whole.k = pool.cut(p.b, p.sk, p.hkv, p.d);
  whole.v = pool.cut(p.b, p.sk, p.hkv, p.dv);
  whole.out = contiguous(out.get(), p.out, {p.b, p.sq, p.hq, p.dv}, {Device::Kind::cuda, 0});
  whole.precision = p.precision;
  if (fp8) whole.recipe = p.recipe;
  const std::size_t bytes = attention_workspace_bytes(whole);
  const Memory workspace = allocate(static_cast<std::int64_t>(bytes));

  Timing t;
  t.problem = workload::format_problem(p);
  t.flop = workload::flop_count(p);
  if (fp8) t.kernel = time_quantised(p, whole, stream, reps);
  t.end_to_end =
      time_runs(stream, reps, [&] { attention_on_device(whole, workspace.get(), bytes, stream); });
  if (!fp8) t.kernel = t.end_to_end;  // there is nothing else
  return t;
}

std::string to_json(const std::vector<Timing>& timings, const std::string& device, int reps) {
  auto results = nlohmann::ordered_json::array();
  for (const Timing& t : timings) {
    results.push_back({{"problem", t.problem},
                       {"kernel_us", t.kernel.us},
                       {"kernel_tflops", t.tflops(t.kernel)},
                       {"kernel_mhz", t.kernel.mhz},
                       {"end_to_end_us", t.end_to_end.us},
                       {"end_to_end_tflops", t.tflops(t.end_to_end)},
                       {"end_to_end_mhz", t.end_to_end.mhz}});
  }
  return nlohmann::ordered_json{
             {"octavo", version()}, {"device", device}, {"reps", reps}, {"results", results}}
             .dump(2) +
         "\n";
}

}  // namespace

int bench_attention(std::vector<workload::Problem> problems, int reps,
                    const std::optional<std::string>& json) {
  const DeviceStatus status = device_status();
  if (!status.usable) throw Error(ErrorCode::unsupported, "bench gpu: " + status.sentence);
  if (problems.empty()) problems = default_problems();
  std::int64_t most = 0;
  for (const auto& p : problems) most = std::max(most, elements(p));
  Pool pool(most);
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  std::vector<Timing> timings;
  for (const auto& p : problems) timings.push_back(time_problem(p, pool, stream, reps));
  check(cudaStreamDestroy(stream), "stream");
  if (json != "-") {
    std::cout << status.sentence << "\n";
    Table table({"problem", "kernel us", "TFLOPS", "SM MHz", "end to end us", "TFLOPS"}, "lrrrrr");
    for (const Timing& t : timings) {
      table.add({t.problem, fixed(t.kernel.us, 1), fixed(t.tflops(t.kernel), 0),
                 fixed(t.kernel.mhz, 0), fixed(t.end_to_end.us, 1),
                 fixed(t.tflops(t.end_to_end), 0)});
    }
    table.print(std::cout);
  }
  if (json) write_text(*json, to_json(timings, status.sentence, reps));
  return kOk;
}

}  // namespace octavo::cli

#endif
