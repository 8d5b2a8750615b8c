// SPDX-License-Identifier: Apache-2.0
// The order of keys inside V^T, chosen so that the scores' accumulator fragment, cast to FP8 and
// packed, is the operand fragment of the second product without any exchange between threads.
//
// In a wgmma FP32 accumulator, thread c = lane % 4 of a row holds columns 8 j + 2 c + {0, 1}; an
// FP8 A operand wants k = 4 c + {0..3} and 16 + 4 c + {0..3} from the same thread (PTX ISA, wgmma
// "Register Fragments"). So position 4 c + i of each group of 32 keys holds
//     key 2 c + i          for i < 2,
//     key 8 + 2 c + i - 2  for i >= 2,      and position 16 + 4 c + i the same key plus 16.
#pragma once

#include <cstdint>

namespace octavo {

inline constexpr int kKvOrderGroup = 32;

/// The key that stands at `position` of V^T.
constexpr std::int64_t key_at_position(std::int64_t position) {
  const std::int64_t group = position & ~std::int64_t{kKvOrderGroup - 1};
  const std::int64_t upper = position & 16;
  const std::int64_t c = (position >> 2) & 3;
  const std::int64_t i = position & 3;
  return group + upper + 2 * c + (i < 2 ? i : i + 6);
}

/// The position of V^T at which `key` stands.
constexpr std::int64_t position_of_key(std::int64_t key) {
  const std::int64_t group = key & ~std::int64_t{kKvOrderGroup - 1};
  const std::int64_t upper = key & 16;
  const std::int64_t c = (key >> 1) & 3;
  const std::int64_t i = (key & 1) + ((key & 8) ? 2 : 0);
  return group + upper + 4 * c + i;
}

}  // namespace octavo
