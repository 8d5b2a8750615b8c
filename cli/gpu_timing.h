// SPDX-License-Identifier: Apache-2.0
// Device memory and timing by events, for the benchmarks that need a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "octavo/error.h"
#include "sm_clock.h"

namespace octavo::cli {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error(ErrorCode::cuda, std::string(what) + ": " + cudaGetErrorString(error));
}

struct FreeMemory {
  void operator()(void* p) const { cudaFree(p); }
};
using Memory = std::unique_ptr<void, FreeMemory>;

inline Memory allocate(std::int64_t bytes) {
  void* p = nullptr;
  check(cudaMalloc(&p, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))), "allocating");
  return Memory(p);
}

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

inline Event record(cudaStream_t stream) {
  cudaEvent_t event;
  check(cudaEventCreate(&event), "event");
  Event owner(event);
  check(cudaEventRecord(event, stream), "event");
  return owner;
}

/// The multiprocessors' clock on a stream between start() and mhz(). Made before what is timed is
/// warmed up: making it takes the CPU long enough for the GPU to fall idle.
class ClockMeter {
 public:
  explicit ClockMeter(cudaStream_t stream)
      : stream_(stream), begin_(allocate(kBytes)), end_(allocate(kBytes)) {
    for (const Memory* readings : {&begin_, &end_}) {
      check(cudaMemsetAsync(readings->get(), 0, kBytes, stream), "clock");
    }
    start();  // loads the kernel
    check(cudaStreamSynchronize(stream), "clock");
  }
  void start() const {
    check(read_clocks(static_cast<ClockReading*>(begin_.get()), stream_), "clock");
  }
  /// Waits for the stream.
  double mhz() const {
    check(read_clocks(static_cast<ClockReading*>(end_.get()), stream_), "clock");
    return mean_mhz(download(begin_), download(end_));
  }

 private:
  static constexpr std::int64_t kBytes = kMostMultiprocessors * sizeof(ClockReading);

  std::vector<ClockReading> download(const Memory& readings) const {
    std::vector<ClockReading> read(kMostMultiprocessors);
    check(cudaMemcpyAsync(read.data(), readings.get(), kBytes, cudaMemcpyDeviceToHost, stream_),
          "clock");
    check(cudaStreamSynchronize(stream_), "clock");
    return read;
  }

  cudaStream_t stream_;
  Memory begin_, end_;
};

/// Of one run, the median of several, and the clock that the multiprocessors had meanwhile.
struct RunTime {
  double us = 0, mhz = 0;
};

/// Time of `launch` by events on `stream`, after a pause, in which the board cools down from what
/// ran before, and three runs to warm up. All runs are queued before the first is waited for, so
/// that the GPU never waits for the CPU.
template <typename Launch>
RunTime time_runs(cudaStream_t stream, int reps, Launch launch) {
  constexpr auto kPause = std::chrono::milliseconds(250);
  const ClockMeter clock(stream);
  std::this_thread::sleep_for(kPause);
  for (int i = 0; i < 3; ++i) launch();
  clock.start();
  std::vector<Event> marks;
  marks.push_back(record(stream));
  for (int i = 0; i < reps; ++i) {
    launch();
    marks.push_back(record(stream));
  }
  RunTime time;
  time.mhz = clock.mhz();
  std::vector<double> us;
  for (std::size_t i = 1; i < marks.size(); ++i) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, marks[i - 1].get(), marks[i].get()), "timing");
    us.push_back(1e3 * static_cast<double>(ms));
  }
  std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());
  time.us = us[us.size() / 2];
  return time;
}

}  // namespace octavo::cli
