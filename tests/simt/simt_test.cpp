// SPDX-License-Identifier: Apache-2.0
// That the CPU's way of running device code sees what is wrong with it.
#include <gtest/gtest.h>

#include <cstring>

#include "device.h"
#include "sm90/ptx/cp_async.cuh"
#include "sm90/ptx/reduce.cuh"

namespace octavo::simt {
namespace {

constexpr Order kOrders[] = {Order::forward, Order::backward, Order::random};

struct Arguments {
  const void* in = nullptr;
  float* out = nullptr;
  bool correct = true;
};
using Kernel = void (*)(const Arguments&);

void run(Kernel kernel, const Arguments& arguments, std::size_t shared_bytes = 1024,
         int threads = 64) {
  const auto call = [](const void* function, const void* of) {
    reinterpret_cast<Kernel>(const_cast<void*>(function))(*static_cast<const Arguments*>(of));
  };
  launch(call, reinterpret_cast<const void*>(kernel), &arguments, 1, threads, shared_bytes);
}

/// Each thread's number, handed to the one at the other end by way of shared memory.
__global__ void reverse(const Arguments& args) {
  auto* place = reinterpret_cast<float*>(dynamic_shared());
  const int thread = static_cast<int>(threadIdx.x), last = static_cast<int>(blockDim.x) - 1;
  place[thread] = static_cast<float>(thread);
  if (args.correct) __syncthreads();
  args.out[thread] = place[last - thread];
}

TEST(Simt, AMissingBarrierIsSeen) {
  for (const bool correct : {true, false}) {
    int right = 0;
    for (const Order order : kOrders) {
      set_schedule({order, false});
      float out[64];
      run(&reverse, {nullptr, out, correct});
      bool all = true;
      for (int i = 0; i < 64; ++i) all &= out[i] == static_cast<float>(63 - i);
      right += all;
    }
    EXPECT_EQ(right, correct ? 3 : 0);
  }
}

/// The sum of 16 bytes that were copied.
__global__ void copied(const Arguments& args) {
  auto* place = dynamic_shared();
  if (threadIdx.x == 0) {
    sm90::ptx::cp_async_16(place, args.in, true);
    sm90::ptx::cp_async_commit();
    if (args.correct) sm90::ptx::cp_async_wait<0>();
    float four[4];
    std::memcpy(four, place, sizeof four);
    *args.out = four[0] + four[1] + four[2] + four[3];
    sm90::ptx::cp_async_wait<0>();
  }
}

TEST(Simt, ACopyThatIsNotAwaitedIsSeen) {
  alignas(16) const float in[4] = {1, 2, 3, 4};
  float out = 0;
  set_schedule({Order::forward, true});
  run(&copied, {in, &out, true});
  EXPECT_EQ(out, 10);
  run(&copied, {in, &out, false});
  EXPECT_TRUE(std::isnan(out));
  EXPECT_DEATH(run(&copied, {reinterpret_cast<const char*>(in) + 4, &out, true}), "not aligned");
}

/// What a warp makes of its lanes' numbers.
__global__ void exchange(const Arguments& args) {
  const auto lane = static_cast<float>(threadIdx.x % 32);
  args.out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, lane, 5) + 100 * sm90::ptx::redux_max(lane);
}

TEST(Simt, LanesExchange) {
  for (const Order order : kOrders) {
    set_schedule({order, false});
    float out[64];
    run(&exchange, {nullptr, out});
    for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], static_cast<float>((i % 32 ^ 5) + 3100));
  }
}

__global__ void diverge(const Arguments&) {
  if (threadIdx.x == 3) {
    __syncwarp();
  } else {
    __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  }
}
__global__ void leave_others(const Arguments&) {
  if (threadIdx.x >= 32) __syncthreads();
  if (threadIdx.x < 32) __shfl_xor_sync(0xffffffffu, 1.0f, static_cast<int>(threadIdx.x / 16) + 1);
}
__global__ void write_beyond(const Arguments&) { dynamic_shared()[1024] = 1; }

TEST(Simt, BrokenCollectivesAndBoundsEndTheProgram) {
  set_schedule({});
  EXPECT_DEATH(run(&diverge, {}), "different places");
  EXPECT_DEATH(run(&leave_others, {}), "different places");
  EXPECT_DEATH(run(&write_beyond, {}), "does not have");
  EXPECT_DEATH(run(&reverse, {}, 228 * 1024), "more shared memory");
}

}  // namespace
}  // namespace octavo::simt
