// SPDX-License-Identifier: Apache-2.0
// The emulation's speed: end to end on one head of 4096 x 128, and its two matrix products alone.
// `octavo bench` times any problem line; this one is for work on the inner loops.
#include <benchmark/benchmark.h>

#include <vector>

#include "core/hadamard.h"
#include "emulate/mma.h"
#include "octavo/attention.h"

namespace octavo {
namespace {

std::vector<float> uniform(std::int64_t n, std::uint64_t seed) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (auto& value : x)
    value = static_cast<float>(static_cast<double>(split_mix(seed) >> 11) * 0x1p-51 - 2.0);
  return x;
}

void end_to_end(benchmark::State& state) {
  const std::int64_t s = 4096, d = 128;
  std::vector<float> q = uniform(s * d, 1), k = uniform(s * d, 2), v = uniform(s * d, 3);
  std::vector<float> out(q.size());
  AttentionParams params;
  params.q = contiguous(q.data(), DType::f32, {1, s, 1, d});
  params.k = contiguous(k.data(), DType::f32, {1, s, 1, d});
  params.v = contiguous(v.data(), DType::f32, {1, s, 1, d});
  params.out = contiguous(out.data(), DType::f32, {1, s, 1, d});
  params.accumulator = state.range(0) ? Accumulator::hopper : Accumulator::fp32;
  params.engine = "emulate";
  for (auto _ : state) attention_forward(params);
  state.SetLabel(accumulator_name(params.accumulator));
  state.counters["flop/s"] =
      benchmark::Counter(4.0 * s * s * d, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(end_to_end)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->UseRealTime();

void product(benchmark::State& state) {
  const std::int64_t rows = 128, cols = 128, depth = 128;
  emulate::CodeTile a(rows, depth), b(depth, cols);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * depth));
  std::uint64_t seed = 7;
  for (auto& code : codes) code = static_cast<std::uint8_t>(split_mix(seed) % 0x7f);
  a.decode(codes.data(), rows, DType::f8_e4m3);
  b.decode(codes.data(), depth, DType::f8_e4m3);
  std::vector<float> c(static_cast<std::size_t>(rows * cols));
  const Accumulator model = state.range(0) ? Accumulator::hopper : Accumulator::fp32;
  for (auto _ : state) {
    std::fill(c.begin(), c.end(), 0.0f);
    emulate::mma(model, a.matrix(), b.matrix(), c.data(), cols, rows, cols, depth, true);
    benchmark::DoNotOptimize(c.data());
  }
  state.SetLabel(accumulator_name(model));
  state.counters["flop/s"] =
      benchmark::Counter(2.0 * rows * cols * depth, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(product)->Arg(0)->Arg(1);

}  // namespace
}  // namespace octavo
