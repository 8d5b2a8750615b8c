// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace octavo {

/// The number of threads a request for `threads` gets: itself, or one per core where it is 0.
int resolve_threads(int threads);

/// Calls body(index, worker) for every index in [0, count), in any order, on up to `threads`
/// threads; worker is in [0, threads). The first exception is rethrown here once all have stopped.
void parallel_for(std::int64_t count, int threads,
                  const std::function<void(std::int64_t index, int worker)>& body);

}  // namespace octavo
