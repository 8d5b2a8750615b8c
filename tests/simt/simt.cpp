// SPDX-License-Identifier: Apache-2.0
#include "simt.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "core/half.h"
#include "support/tensor_core_sum.h"

namespace octavo::simt {

dim3 thread_index, block_index, block_extent;

namespace {

constexpr int kLanes = 32;
constexpr std::size_t kStackBytes = 128 * 1024, kMostShared = 227 * 1024, kSharedBytes = 256 * 1024;
constexpr unsigned char kPoison = 0xff;

alignas(1024) char shared_memory[kSharedBytes];

enum class State { ready, in_warp, in_block, ended };

struct Copy {
  void* to;
  const void* from;
  bool valid;

  void arrive() const {
    if (valid) {
      std::memcpy(to, from, 16);
    } else {
      std::memset(to, 0, 16);
    }
  }
};

/// Makes and changes stacks. A context makes one, at the price of a system call; from then on jumps
/// do.
class Fiber {
 public:
  void begin(void (*entry)()) {
    if (stack_ == nullptr) stack_ = std::make_unique<char[]>(kStackBytes);
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
    has_run_ = false;
  }
  /// From the scheduler into the fiber, until it leaves.
  void enter(jmp_buf& scheduler) {
    if (_setjmp(scheduler) != 0) return;
    if (has_run_) _longjmp(place_, 1);
    has_run_ = true;
    setcontext(&context_);
  }
  void leave(jmp_buf& scheduler) {
    if (_setjmp(place_) == 0) _longjmp(scheduler, 1);
  }

 private:
  ucontext_t context_;
  jmp_buf place_;
  std::unique_ptr<char[]> stack_;
  bool has_run_ = false;
};

struct Thread {
  Fiber fiber;
  State state = State::ready;
  Meeting meeting{};
  int number = 0;
  Words words{};
  std::array<std::uint32_t, 4> result{};
  std::vector<Copy> open, committed;
};

/// The block that runs.
struct Block {
  void (*call)(const void*, const void*) = nullptr;
  const void *kernel = nullptr, *arguments = nullptr;
  std::size_t shared_bytes = 0;
  std::vector<Thread> threads;
  int current = 0;
  jmp_buf scheduler;
};

Block block;
Schedule schedule_of_all;
std::mt19937 random_order(1);

[[noreturn]] void fail(const char* why) {
  std::fprintf(stderr, "block %u, thread %d: %s\n", block_index.x, block.current, why);
  std::abort();
}

Thread& current() { return block.threads[static_cast<std::size_t>(block.current)]; }
void leave() { current().fiber.leave(block.scheduler); }

void enter_kernel() {
  block.call(block.kernel, block.arguments);
  if (!current().open.empty()) fail("ended with copies of no group");
  current().state = State::ended;
  leave();
}

void begin(Thread& thread) {
  thread.state = State::ready;
  thread.open.clear(), thread.committed.clear();
  thread.fiber.begin(&enter_kernel);
}

void run(int thread) {
  block.current = thread;
  thread_index.x = static_cast<unsigned>(thread);
  current().fiber.enter(block.scheduler);
}

// ---- Meetings

float number_of(std::uint32_t word, int half, bool f16) {
  const auto bits = static_cast<std::uint16_t>(word >> 16 * half);
  return f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

/// mma.m16n8k16 by the fragments of the PTX ISA.
void multiply(Thread* lanes, bool f16) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const Words& words = lanes[lane].words;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) {
        a[g + 8 * (i % 2)][2 * t + half + 8 * (i / 2)] =
            number_of(words[static_cast<std::size_t>(i)], half, f16);
      }
      for (int i = 0; i < 2; ++i) {
        b[2 * t + half + 8 * i][g] = number_of(words[static_cast<std::size_t>(4 + i)], half, f16);
      }
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      float terms[16];
      for (int k = 0; k < 16; ++k) terms[k] = a[row][k] * b[k][column];
      lanes[lane].result[static_cast<std::size_t>(i)] =
          std::bit_cast<std::uint32_t>(test::tensor_core_sum(terms));
    }
  }
}

void hold(Thread* lanes) {
  const Thread& first = lanes[0];
  switch (first.meeting) {
    case Meeting::syncwarp: return;
    case Meeting::shuffle_xor:
      for (int i = 0; i < kLanes; ++i) lanes[i].result[0] = lanes[i ^ first.number].words[0];
      return;
    case Meeting::largest: {
      std::uint32_t most = 0;
      for (int i = 0; i < kLanes; ++i) most = std::max(most, lanes[i].words[0]);
      for (int i = 0; i < kLanes; ++i) lanes[i].result[0] = most;
      return;
    }
    case Meeting::product_bf16: return multiply(lanes, false);
    case Meeting::product_f16: return multiply(lanes, true);
  }
}

/// Lets a warp go on whose lanes are all in a meeting, or have ended where the others only wait for
/// one another.
bool hold_if_complete(int warp) {
  Thread* lanes = &block.threads[static_cast<std::size_t>(warp * kLanes)];
  int here = 0, ended = 0;
  const Thread* first = nullptr;
  for (int i = 0; i < kLanes; ++i) {
    here += lanes[i].state == State::in_warp, ended += lanes[i].state == State::ended;
    if (lanes[i].state == State::in_warp && first == nullptr) first = &lanes[i];
  }
  if (here == 0 || here + ended < kLanes) return false;
  for (int i = 0; i < kLanes; ++i) {
    if (lanes[i].state == State::ended) {
      if (first->meeting != Meeting::syncwarp) fail("a lane has ended before a meeting");
    } else if (lanes[i].meeting != first->meeting || lanes[i].number != first->number) {
      fail("lanes of a warp are at different places");
    }
  }
  if (ended == 0) hold(lanes);
  for (int i = 0; i < kLanes; ++i) {
    if (lanes[i].state == State::in_warp) lanes[i].state = State::ready;
  }
  return true;
}

// ---- Schedules

/// Runs what is ready of a warp, lane after lane, until it waits for other warps.
bool run_warp(int warp, bool backward) {
  bool ran = false;
  do {
    for (int i = 0; i < kLanes; ++i) {
      const int thread = warp * kLanes + (backward ? kLanes - 1 - i : i);
      if (block.threads[static_cast<std::size_t>(thread)].state != State::ready) continue;
      run(thread);
      ran = true;
    }
  } while (hold_if_complete(warp));
  return ran;
}

bool run_in_order(bool backward) {
  const int warps = static_cast<int>(block.threads.size()) / kLanes;
  bool ran = false;
  for (int i = 0; i < warps; ++i) ran |= run_warp(backward ? warps - 1 - i : i, backward);
  return ran;
}

/// A third of all threads, anywhere.
bool run_at_random() {
  std::vector<int> order(block.threads.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_order);
  std::size_t left = order.size() / 3 + 1;
  bool ran = false;
  for (const int thread : order) {
    if (block.threads[static_cast<std::size_t>(thread)].state != State::ready) continue;
    run(thread);
    hold_if_complete(thread / kLanes);
    ran = true;
    if (--left == 0) break;
  }
  return ran;
}

/// Lets all go on that are at the barrier, if nobody else is on the way to it.
bool pass_barrier() {
  std::size_t here = 0, ended = 0;
  for (const Thread& thread : block.threads) {
    here += thread.state == State::in_block, ended += thread.state == State::ended;
  }
  if (here == 0 || here + ended < block.threads.size()) return false;
  for (Thread& thread : block.threads) {
    if (thread.state == State::in_block) thread.state = State::ready;
  }
  return true;
}

bool all_have_ended() {
  return std::all_of(block.threads.begin(), block.threads.end(),
                     [](const Thread& thread) { return thread.state == State::ended; });
}

void run_block() {
  std::memset(shared_memory, kPoison, sizeof shared_memory);
  for (Thread& thread : block.threads) begin(thread);
  while (!all_have_ended()) {
    const bool ran = schedule_of_all.order == Order::random
                         ? run_at_random()
                         : run_in_order(schedule_of_all.order == Order::backward);
    if (!pass_barrier() && !ran) fail("nobody can go on");
  }
  const auto untouched = [](char byte) { return static_cast<unsigned char>(byte) == kPoison; };
  if (!std::all_of(shared_memory + block.shared_bytes, shared_memory + kSharedBytes, untouched)) {
    fail("shared memory was written that the launch does not have");
  }
}

}  // namespace

void set_schedule(const Schedule& schedule) { schedule_of_all = schedule; }

void launch(void (*call)(const void*, const void*), const void* kernel, const void* arguments,
            int blocks, int threads, std::size_t shared_bytes) {
  if (shared_bytes > kMostShared) fail("more shared memory than there is");
  if (threads % kLanes != 0) fail("a block of broken warps");
  block.call = call;
  block.kernel = kernel, block.arguments = arguments;
  block.shared_bytes = shared_bytes;
  block.threads.resize(static_cast<std::size_t>(threads));
  block_extent = dim3(static_cast<unsigned>(threads));
  for (int i = 0; i < blocks; ++i) {
    block_index.x = static_cast<unsigned>(i);
    run_block();
  }
}

std::array<std::uint32_t, 4> meet(Meeting meeting, int number, const Words& words) {
  Thread& thread = current();
  thread.meeting = meeting, thread.number = number, thread.words = words;
  thread.state = State::in_warp;
  leave();
  return thread.result;
}

void sync_block() {
  current().state = State::in_block;
  leave();
}

char* dynamic_shared() { return shared_memory; }

void copy_async(void* to, const void* from, bool valid) {
  const auto offset = static_cast<const char*>(to) - shared_memory;
  if (offset < 0 || static_cast<std::size_t>(offset) + 16 > block.shared_bytes) {
    fail("an asynchronous copy goes outside shared memory");
  }
  if (offset % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
    fail("an asynchronous copy is not aligned");
  }
  const Copy copy{to, from, valid};
  if (!schedule_of_all.copies_arrive_late) copy.arrive();
  if (schedule_of_all.copies_arrive_late) std::memset(to, kPoison, 16);
  current().open.push_back(copy);
}

void commit_copies() {
  Thread& thread = current();
  thread.committed.insert(thread.committed.end(), thread.open.begin(), thread.open.end());
  thread.open.clear();
}

void wait_for_copies() {
  Thread& thread = current();
  if (!thread.open.empty()) fail("waits for copies of no group");
  if (schedule_of_all.copies_arrive_late) {
    for (const Copy& copy : thread.committed) copy.arrive();
  }
  thread.committed.clear();
}

}  // namespace octavo::simt
