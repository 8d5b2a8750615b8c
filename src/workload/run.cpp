// SPDX-License-Identifier: Apache-2.0
#include "workload/run.h"

#include <algorithm>
#include <chrono>

namespace octavo::workload {
namespace {

constexpr std::int64_t kGap = 8;  // elements between rows of a packed problem's output: 16 bytes

void allocate_out(const Problem& p, RunResult& result) {
  switch (p.layout) {
    case Layout::bshd:
      result.out_storage = make_tensor(p.out, {p.b, p.sq, p.hq, p.dv});
      result.out = result.out_storage.view();
      break;
    case Layout::bhsd:
      result.out_storage = make_tensor(p.out, {p.b, p.hq, p.sq, p.dv});
      result.out = transposed(result.out_storage.view(), 1, 2);
      break;
    case Layout::packed:
      result.out_storage = make_tensor(p.out, {p.b, p.sq, p.hq, p.dv + kGap});
      result.out = result.out_storage.view();
      result.out.shape[3] = p.dv;
      break;
  }
}

// Bytes of the gaps that no longer hold the poison.
std::int64_t count_stray_writes(RunResult& result) {
  const TensorView storage = result.out_storage.view();
  const auto size = static_cast<std::int64_t>(size_of(storage.dtype));
  const std::int64_t written = result.out.shape[3] * size;
  const std::int64_t pitch = storage.shape[3] * size;
  if (result.out.shape[3] == storage.shape[3]) return 0;
  std::int64_t stray = 0;
  for (std::int64_t row = 0; row < row_count(storage); ++row) {
    const std::byte* begin = row_at(storage, row);
    stray += std::count_if(begin + written, begin + pitch,
                           [](std::byte byte) { return byte != std::byte{0xff}; });
  }
  return stray;
}

}  // namespace

RunResult run_problem(const Problem& problem, const Inputs& inputs, const RunOptions& options) {
  RunResult result;
  allocate_out(problem, result);
  result.lse = make_tensor(DType::f32, {problem.b, problem.hq, problem.sq});
  poison(result.out_storage);
  poison(result.lse);

  AttentionParams params = attention_params(problem, inputs);
  params.out = result.out;
  params.lse = result.lse.view();
  params.engine = options.engine;
  params.threads = options.threads;
  params.progress = options.progress;

  const auto start = std::chrono::steady_clock::now();
  result.stats = attention_forward(params);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.stray_writes = count_stray_writes(result);
  return result;
}

}  // namespace octavo::workload
