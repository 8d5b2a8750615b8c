// SPDX-License-Identifier: Apache-2.0
#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace octavo {

int resolve_threads(int threads) {
  if (threads > 0) return threads;
  // Asked once: it is a system call, and calls on a GPU come here several times each.
  static const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return cores;
}

void parallel_for(std::int64_t count, int threads,
                  const std::function<void(std::int64_t index, int worker)>& body) {
  const int workers = static_cast<int>(std::min<std::int64_t>(resolve_threads(threads), count));
  if (workers <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  auto work = [&](int worker) {
    try {
      for (std::int64_t i = next++; i < count; i = next++) body(i, worker);
    } catch (...) {
      next = count;
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int worker = 1; worker < workers; ++worker) pool.emplace_back(work, worker);
    work(0);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace octavo
