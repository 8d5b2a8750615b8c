// SPDX-License-Identifier: Apache-2.0
// The engine `sm90`: tensors in device memory run where they are, on the default stream; host
// tensors travel there and back.
#include "sm90/attention/attention.h"
#include "sm90/check.h"
#include "sm90/device.h"
#include "sm90/host_tensors.h"
#include "sm90/sm90.h"

namespace octavo::sm90 {
namespace {

std::string why_unsupported(const AttentionProblem& problem) {
  const std::string reason = why_unsupported_on_device(problem);
  if (!reason.empty()) return reason;
  return device_is_hopper() ? "" : device_status().sentence;
}

void run_on_device(const AttentionProblem& problem) {
  const std::size_t bytes = attention_workspace_bytes(problem);
  void* workspace = nullptr;
  check(cudaMallocAsync(&workspace, bytes == 0 ? 1 : bytes, nullptr), "allocating the workspace");
  const auto release = [](void* p) { cudaFreeAsync(p, nullptr); };
  const std::unique_ptr<void, decltype(release)> owner(workspace, release);
  attend_on_device(problem, workspace, bytes, nullptr, nullptr);
}

Operand upload(Uploads& uploads, const Operand& operand, std::int64_t b, std::int64_t h,
               std::int64_t rows) {
  Operand out{uploads.add(operand.x), {}};
  if (operand.quantised()) out.descale = uploads.add(operand.descale, b, h, rows);
  return out;
}

AttentionProblem upload(Uploads& uploads, const AttentionProblem& problem) {
  AttentionProblem out = problem;
  const Dims& n = problem.dims;
  out.q = upload(uploads, problem.q, n.b, n.hq, n.sq);
  out.k = upload(uploads, problem.k, n.b, n.hkv, n.sk);
  out.v = upload(uploads, problem.v, n.b, n.hkv, n.sk);
  if (problem.rope) {
    out.rope->cos = uploads.add(problem.rope->cos);
    out.rope->sin = uploads.add(problem.rope->sin);
  }
  if (problem.score_shift.present()) out.score_shift = uploads.add(problem.score_shift);
  out.out = uploads.reserve(problem.out);
  if (problem.lse.present()) out.lse = uploads.reserve(problem.lse);
  return out;
}

void run_host_tensors(const AttentionProblem& problem) {
  Uploads uploads;
  const AttentionProblem on_device = upload(uploads, problem);
  run_on_device(on_device);
  check(cudaDeviceSynchronize(), "attending on the device");
  download(on_device.out, problem.out);
  if (problem.lse.present()) download(on_device.lse, problem.lse);
}

AttentionStats run(const AttentionProblem& problem) {
  if (problem.q.x.device.kind == Device::Kind::cuda) {
    run_on_device(problem);
  } else {
    run_host_tensors(problem);
  }
  AttentionStats stats;
  stats.engine = "sm90";
  return stats;
}

}  // namespace

const Engine kEngine{"sm90", "Hopper FP8 tensor cores", true, why_unsupported, run};

}  // namespace octavo::sm90
