// SPDX-License-Identifier: Apache-2.0
// How fast the GPU quantiser moves bytes. Calls are captured into a graph that goes round several
// input sets, together larger than the L2 cache, so that every call reads from memory.
#include "bench_quantize.h"

#include "octavo/error.h"

#ifndef OCTAVO_WITH_CUDA

namespace octavo::cli {

int bench_quantize(const std::vector<workload::Problem>&, const std::string&, int,
                   const std::optional<std::string>&) {
  throw Error(ErrorCode::unsupported, "bench quantize: this octavo was built without CUDA");
}

}  // namespace octavo::cli

#else

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "core/key_mean.h"
#include "gpu_timing.h"
#include "octavo/cuda.h"
#include "octavo/version.h"
#include "output.h"
#include "table.h"
#include "workload/generate.h"

namespace octavo::cli {
namespace {

constexpr std::int64_t kColdBytes = std::int64_t{512} << 20;  // several times a 60 MB L2
constexpr int kCallsPerGraph = 24;

/// Bytes per second, read and written, of a device-to-device copy.
double copy_rate(cudaStream_t stream, int reps) {
  const std::int64_t bytes = std::int64_t{1} << 30;
  const Memory from = allocate(bytes), to = allocate(bytes);
  check(cudaMemset(from.get(), 0x3c, static_cast<std::size_t>(bytes)), "filling");
  const double us = time_runs(stream, reps, [&] {
                      check(cudaMemcpyAsync(to.get(), from.get(), static_cast<std::size_t>(bytes),
                                            cudaMemcpyDeviceToDevice, stream),
                            "copying");
                    }).us;
  return 2.0 * static_cast<double>(bytes) / (us * 1e-6);
}

/// Random angles for an embedding of the whole head dim.
class Angles {
 public:
  Angles(const workload::Problem& p, const std::string& rope) : half_(p.d / 2) {
    if (rope.empty()) return;
    style_ = rope == "interleaved" ? RopeStyle::interleaved : RopeStyle::half_split;
    positions_ = std::max(p.sq, p.sk);
    std::vector<float> table(static_cast<std::size_t>(2 * positions_ * half_));
    for (std::size_t i = 0; i < table.size(); ++i)
      table[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
    memory_ = allocate(static_cast<std::int64_t>(table.size()) * 4);
    check(cudaMemcpy(memory_.get(), table.data(), table.size() * 4, cudaMemcpyHostToDevice),
          "uploading");
  }
  std::optional<Rope> rope() const {
    if (!memory_) return std::nullopt;
    auto* cos = static_cast<float*>(memory_.get());
    const Device cuda{Device::Kind::cuda, 0};
    return Rope{contiguous(cos, DType::f32, {positions_, half_}, cuda),
                contiguous(cos + positions_ * half_, DType::f32, {positions_, half_}, cuda), style_,
                0, 0};
  }
  std::int64_t bytes() const { return memory_ ? 2 * positions_ * half_ * 4 : 0; }

 private:
  std::int64_t half_, positions_ = 0;
  RopeStyle style_ = RopeStyle::half_split;
  Memory memory_;
};

/// One copy of a problem's operands in device memory, with its own workspace.
struct InputSet {
  InputSet(const workload::Problem& p, const workload::Inputs& host,
           const std::optional<Rope>& rope) {
    params.recipe = p.recipe;
    params.rope = rope;
    params.q = upload(host.q);
    params.k = upload(host.k);
    params.v = upload(host.v);
    bytes = quantize_workspace_bytes(params);
    workspace = allocate(static_cast<std::int64_t>(bytes));
  }
  TensorView upload(const TensorView& x) {
    const std::int64_t size = x.numel() * static_cast<std::int64_t>(size_of(x.dtype));
    owned.push_back(allocate(size));
    check(cudaMemcpy(owned.back().get(), x.data, static_cast<std::size_t>(size),
                     cudaMemcpyHostToDevice),
          "uploading");
    TensorView out = x;
    out.data = owned.back().get();
    out.device = {Device::Kind::cuda, 0};
    return out;
  }
  DeviceQkv run(cudaStream_t stream) const {
    return quantize_on_device(params, workspace.get(), bytes, stream);
  }

  QuantizeParams params;
  std::vector<Memory> owned;
  Memory workspace;
  std::size_t bytes = 0;
};

/// What a call must move at the least: operands once (the keys that K's mean is taken of twice),
/// codes, descales.
std::int64_t bytes_moved(const workload::Problem& p, const DeviceQkv& x) {
  const auto element = static_cast<std::int64_t>(size_of(p.in));
  const std::int64_t q = p.b * p.sq * p.hq * p.d, k = p.b * p.sk * p.hkv * p.d,
                     v = p.b * p.sk * p.hkv * p.dv;
  std::int64_t smoothing = 0;
  if (p.recipe.smooth_k) {
    smoothing = mean_keys(p.sk) * p.b * p.hkv * p.d * element + 4 * p.b * p.sq * p.hq;
  }
  return (q + k + v) * (element + 1) + smoothing +
         4 * (x.q.descales() + x.k.descales() + x.v.descales());
}

struct Timing {
  std::string problem;
  double cold_us = 0, warm_us = 0, rate = 0, share = 0;
  std::int64_t bytes = 0;
};

/// Median time of a call, calls going round `sets`.
double graph_us(const std::vector<InputSet>& sets, cudaStream_t stream, int reps) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < kCallsPerGraph; ++i)
    sets[static_cast<std::size_t>(i) % sets.size()].run(stream);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&executable, graph, 0), "instantiating");
  const double us =
      time_runs(stream, reps, [&] { check(cudaGraphLaunch(executable, stream), "replay"); }).us;
  check(cudaGraphExecDestroy(executable), "graph");
  check(cudaGraphDestroy(graph), "graph");
  return us / kCallsPerGraph;
}

Timing time_problem(const workload::Problem& p, const std::string& rope, cudaStream_t stream,
                    int reps, double copy) {
  const workload::Inputs host = workload::generate(p);
  const Angles angles(p, rope);
  std::vector<InputSet> sets;
  std::int64_t total = 0;
  while (total < kColdBytes && sets.size() < static_cast<std::size_t>(kCallsPerGraph)) {
    sets.emplace_back(p, host, angles.rope());
    for (const TensorView* x : {&host.q, &host.k, &host.v}) {
      total += x->numel() * static_cast<std::int64_t>(size_of(x->dtype));
    }
  }
  Timing t;
  t.problem = workload::format_problem(p) + (rope.empty() ? "" : " rope=" + rope);
  t.bytes = bytes_moved(p, sets[0].run(stream)) + angles.bytes();
  t.cold_us = graph_us(sets, stream, reps);
  sets.erase(sets.begin() + 1, sets.end());
  t.warm_us = graph_us(sets, stream, reps);
  t.rate = static_cast<double>(t.bytes) / (t.cold_us * 1e-6);
  t.share = t.rate / copy;
  return t;
}

std::string to_json(const std::vector<Timing>& timings, double copy, const std::string& device,
                    int reps) {
  auto results = nlohmann::ordered_json::array();
  for (const Timing& t : timings) {
    results.push_back({{"problem", t.problem},
                       {"us_cold", t.cold_us},
                       {"us_warm", t.warm_us},
                       {"bytes", t.bytes},
                       {"bytes_per_second", t.rate},
                       {"share_of_copy", t.share}});
  }
  return nlohmann::ordered_json{{"octavo", version()},
                                {"device", device},
                                {"reps", reps},
                                {"copy_bytes_per_second", copy},
                                {"results", results}}
             .dump(2) +
         "\n";
}

}  // namespace

int bench_quantize(const std::vector<workload::Problem>& problems, const std::string& rope,
                   int reps, const std::optional<std::string>& json) {
  const DeviceStatus status = device_status();
  if (!status.usable) throw Error(ErrorCode::unsupported, "bench quantize: " + status.sentence);
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const double copy = copy_rate(stream, reps);
  std::vector<Timing> timings;
  for (const auto& problem : problems)
    timings.push_back(time_problem(problem, rope, stream, reps, copy));
  check(cudaStreamDestroy(stream), "stream");
  if (json != "-") {
    std::cout << status.sentence << "; device-to-device copy " << fixed(copy * 1e-12, 3)
              << " TB/s\n";
    Table table({"problem", "us", "us in L2", "MB moved", "TB/s", "of copy"}, "lrrrrr");
    for (const Timing& t : timings) {
      table.add({t.problem, fixed(t.cold_us, 2), fixed(t.warm_us, 2),
                 fixed(static_cast<double>(t.bytes) * 1e-6, 1), fixed(t.rate * 1e-12, 3),
                 fixed(100 * t.share, 1) + " %"});
    }
    table.print(std::cout);
  }
  if (json) write_text(*json, to_json(timings, copy, status.sentence, reps));
  return kOk;
}

}  // namespace octavo::cli

#endif
