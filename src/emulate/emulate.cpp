// SPDX-License-Identifier: Apache-2.0
#include "emulate/emulate.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "core/load.h"
#include "core/parallel.h"
#include "core/validate.h"
#include "emulate/attend.h"
#include "emulate/smooth.h"

namespace octavo::emulate {
namespace {

using Role = OperandQuantiser::Role;

/// Quantised K and V held at a time: enough heads to keep threads busy, little enough to stay
/// small beside the inputs.
constexpr std::int64_t kResidentBytes = std::int64_t{16} << 20;

Quantisers make_quantisers(const AttentionProblem& problem) {
  Quantisers quantisers{OperandQuantiser(problem, Role::q), OperandQuantiser(problem, Role::k),
                        OperandQuantiser(problem, Role::v)};
  quantisers.q.prepare(problem.threads);
  quantisers.k.prepare(problem.threads);
  quantisers.v.prepare(problem.threads);
  return quantisers;
}

KvHead allocate_head(const Quantisers& quantisers, std::int64_t block_n, std::int64_t b,
                     std::int64_t h) {
  const OperandQuantiser &k = quantisers.k, &v = quantisers.v;
  const std::int64_t keys = ceil_div(k.length(b), block_n) * block_n;
  KvHead kv;
  kv.b = b;
  kv.h = h;
  kv.block_n = block_n;
  kv.k.resize(static_cast<std::size_t>(keys * k.padded_d() * k.code_bytes()));
  kv.v.resize(static_cast<std::size_t>(keys * v.padded_d() * v.code_bytes()));
  kv.k_descale.resize(static_cast<std::size_t>(keys));
  kv.v_descale.resize(static_cast<std::size_t>(keys));
  return kv;
}

void add(CastCounts& sum, const CastCounts& x) {
  sum.saturated += x.saturated;
  sum.flushed += x.flushed;
  sum.total += x.total;
}

/// Runs a call over batches of (batch, kv head) pairs; holds what the threads share.
class Run {
 public:
  explicit Run(const AttentionProblem& problem)
      : problem_(problem),
        quantisers_(make_quantisers(problem)),
        tiles_(static_cast<std::size_t>(problem.threads)),
        stats_(static_cast<std::size_t>(problem.threads)) {}

  AttentionStats operator()() {
    const std::int64_t heads = problem_.dims.b * problem_.dims.hkv;
    for (std::int64_t first = 0; first < heads;) {
      std::int64_t bytes = 0;
      std::vector<KvHead> batch;
      while (first < heads && (batch.empty() || bytes < kResidentBytes)) {
        batch.push_back(allocate_head(quantisers_, problem_.block_n(), first / problem_.dims.hkv,
                                      first % problem_.dims.hkv));
        bytes += static_cast<std::int64_t>(batch.back().k.size() + batch.back().v.size());
        ++first;
      }
      quantise(batch);
      attend_batch(batch);
    }
    return total();
  }

 private:
  void quantise(std::vector<KvHead>& batch) {
    std::vector<std::pair<KvHead*, std::int64_t>> tasks;
    for (KvHead& kv : batch) {
      const auto keys = static_cast<std::int64_t>(kv.k_descale.size());
      for (std::int64_t t = 0; t < keys / kv.block_n; ++t) tasks.emplace_back(&kv, t);
    }
    parallel_for(static_cast<std::int64_t>(tasks.size()), problem_.threads,
                 [&](std::int64_t i, int worker) {
                   const auto& [kv, t] = tasks[static_cast<std::size_t>(i)];
                   load_key_tile(*kv, quantisers_, t, stats_[static_cast<std::size_t>(worker)]);
                 });
  }

  void attend_batch(const std::vector<KvHead>& batch) {
    const std::int64_t group = problem_.dims.group();
    const std::int64_t query_tiles = ceil_div(problem_.dims.sq, kBlockM);
    const std::int64_t per_head = group * query_tiles;
    const std::int64_t all = per_head * problem_.dims.b * problem_.dims.hkv;
    parallel_for(static_cast<std::int64_t>(batch.size()) * per_head, problem_.threads,
                 [&](std::int64_t i, int worker) {
                   const auto w = static_cast<std::size_t>(worker);
                   const KvHead& kv = batch[static_cast<std::size_t>(i / per_head)];
                   const std::int64_t h = kv.h * group + (i % per_head) / query_tiles;
                   // Longest first: under a causal mask the last rows see the most keys.
                   const std::int64_t m = (query_tiles - 1 - i % query_tiles) * kBlockM;
                   attend(tile(w), problem_, quantisers_, kv, h, m, stats_[w]);
                   if (problem_.progress) {
                     problem_.progress(static_cast<double>(++done_) / static_cast<double>(all));
                   }
                 });
  }

  Tile& tile(std::size_t worker) {
    auto& slot = tiles_[worker];
    if (!slot) {
      slot = std::make_unique<Tile>(quantisers_.q.padded_d(), quantisers_.v.padded_d(),
                                    problem_.block_n());
    }
    return *slot;
  }

  AttentionStats total() const {
    AttentionStats sum;
    sum.engine = kEngine.name;
    for (const AttentionStats& x : stats_) {
      add(sum.q, x.q);
      add(sum.k, x.k);
      add(sum.v, x.v);
      add(sum.p, x.p);
    }
    return sum;
  }

  const AttentionProblem& problem_;
  Quantisers quantisers_;
  std::vector<std::unique_ptr<Tile>> tiles_;
  std::vector<AttentionStats> stats_;
  std::atomic<std::int64_t> done_{0};
};

std::string why_unsupported(const AttentionProblem& problem) {
  if (problem.q.x.device.kind != Device::Kind::cpu) return "tensors are not in host memory";
  return why_not_in_fp8(problem);
}

AttentionStats run(const AttentionProblem& problem) { return Run(problem)(); }

}  // namespace

const Engine kEngine{"emulate", "the GPU data path on the CPU", true, why_unsupported, run};

}  // namespace octavo::emulate
