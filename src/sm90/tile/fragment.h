// SPDX-License-Identifier: Apache-2.0
// Who owns which row and column of a warpgroup's 64 x N accumulator. PTX ISA, "Register Fragments
// for wgmma.mma_async": register 4 j + i of thread t, with warp w = t / 32, g = t % 32 / 4,
// c = t % 4, holds row 16 w + g + 8 (i / 2), column 8 j + 2 c + i % 2.
#pragma once

namespace octavo::sm90 {

inline constexpr int kWarpgroupRows = 64;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpRows = kWarpgroupRows / 4;

/// A thread's two rows are fragment_row(t) and fragment_row(t) + 8. Of a thread block's threads, 0
/// <= t; unsigned, since signed division by powers of two takes four instructions.
constexpr int fragment_row(int thread) {
  const auto t = static_cast<unsigned>(thread);
  return static_cast<int>(t / 32 * kWarpRows + t % 32 / 4);
}

/// Which of the thread's two rows register `r` belongs to.
constexpr int fragment_half(int r) { return r / 2 % 2; }

/// The column of register `r`, less the thread's first column.
constexpr int fragment_column(int r) { return r / 4 * 8 + r % 2; }
constexpr int fragment_first_column(int thread) {
  return static_cast<int>(static_cast<unsigned>(thread) % 4 * 2);
}

/// Where 16 bytes, the unit-th eighth of a row, lie in a piece of rows of 128 bytes that the copy
/// engine swizzles.
constexpr int swizzled_offset(int row, int unit) { return row * 128 + (unit ^ (row % 8)) * 16; }

/// The register of an accumulator of scores that byte `byte` of word `word` of an FP8 A operand
/// takes (core/kv_order.h): word 4 s + 2 v + half of product s has keys 32 s + 16 v + ..
constexpr int score_of_operand(int word, int byte) {
  const int j = word / 4 * 4 + word / 2 % 2 * 2 + byte / 2;
  return 4 * j + 2 * (word % 2) + byte % 2;
}

}  // namespace octavo::sm90
