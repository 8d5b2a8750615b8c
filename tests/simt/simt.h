// SPDX-License-Identifier: Apache-2.0
// Device code on the CPU, for tests: a thread block whose threads are fibers, one block after
// another. What they do is left to g++, and to its sanitizers; device.h has the language.
//
// Threads run one at a time, in an order that is the schedule's, until they meet: at a barrier, or
// where the lanes of a warp exchange something. All lanes must meet at the same place, or the
// program ends with a message. Asynchronous copies arrive at once or, the other half of all tests,
// no sooner than they are waited for. Shared memory begins as NaN, and must not be written beyond
// what the launch asked for.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace octavo::simt {

enum class Order { forward, backward, random };

/// Of all launches to come.
struct Schedule {
  Order order = Order::forward;
  bool copies_arrive_late = false;
};
void set_schedule(const Schedule& schedule);

/// Runs kernel(arguments) for each thread of each block.
void launch(void (*call)(const void* kernel, const void* arguments), const void* kernel,
            const void* arguments, int blocks, int threads, std::size_t shared_bytes);

extern dim3 thread_index, block_index, block_extent;

/// What the lanes of a warp do together.
enum class Meeting { syncwarp, shuffle_xor, largest, product_bf16, product_f16 };
using Words = std::array<std::uint32_t, 6>;

/// Waits until all lanes of the warp are here, with the same meeting and number; the result of this
/// lane.
std::array<std::uint32_t, 4> meet(Meeting meeting, int number, const Words& words);
void sync_block();

char* dynamic_shared();
/// 16 bytes, or zeros.
void copy_async(void* to, const void* from, bool valid);
void commit_copies();
void wait_for_copies();

}  // namespace octavo::simt
