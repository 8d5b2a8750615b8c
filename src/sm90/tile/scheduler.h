// SPDX-License-Identifier: Apache-2.0
// Which tile of query rows a thread block takes next.
//
// Items are ordered in sections of heads whose K and V fit L2 together; inside a section, the last
// query rows, which see most keys under a causal mask, come first. Thread block x takes one item of
// each round of gridDim.x items, x forwards in even rounds and backwards in odd ones: with lengths
// that fall along the order, the sums come out nearly equal.
//
// Where the rows of a head are no multiple of a tile's, the rest may be spread over its last few
// tiles, each a warpgroup's rows shorter; those of all heads come after all whole ones, and even
// out who has one item more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace octavo::sm90 {

struct WorkItem {
  int m_block = 0;
  int head = 0;  // query head
  int batch = 0;
  int split = 0;  // of its keys
};

struct Schedule {
  int m_blocks = 0;
  int heads = 0;  // query heads
  int batches = 0;
  int section = 1;  // heads of a section, counted over batches; a multiple of the group
  int splits = 1;   // of the keys of each tile: items next to each other
  int shorter = 0;  // tiles of each head, its last ones, that are a warpgroup's rows shorter

  constexpr int items() const { return m_blocks * heads * batches * splits; }

  /// The index of a thread block's item of this round; items() or more where it has none.
  constexpr int index(int block, int blocks, int round) const {
    return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
  }

  constexpr WorkItem at(int index) const {
    const int all_heads = heads * batches, whole = m_blocks - shorter, tile = index / splits;
    const bool is_whole = tile < whole * all_heads;
    const int last = is_whole ? whole : m_blocks;  // tiles of a head [last - count, last)
    const int count = is_whole ? whole : shorter;
    const int at = is_whole ? tile : tile - whole * all_heads;
    const int per_section = section * count;
    const int first = at / per_section * section;
    const int width = all_heads - first < section ? all_heads - first : section;
    const int within = at % per_section;
    const int head = first + within % width;
    return {last - 1 - within / width, head % heads, head / heads, index % splits};
  }

  /// The first row of a tile, `rows` being a whole one's and `step` a warpgroup's; that of tile
  /// m_block + 1 is where it ends, or the last row of all before that.
  constexpr int first_row(int m_block, int rows, int step) const {
    const int whole = m_blocks - shorter;
    return m_block * rows - (m_block > whole ? m_block - whole : 0) * step;
  }
};

// How many heads a section should have, of `heads` query heads over all batches, `group` of which
// share K and V; head_bytes: K's and V's for one query head. Of L2's 50 MB, sections get what
// measured best.
inline constexpr std::int64_t kSectionBytes = 24 << 20, kMostSectionBytes = 34 << 20;

/// How many of a head's tiles to make shorter, for `groups` times a warpgroup's rows in tiles of
/// `per_tile`: as many as the last tile would lack, if there are so many.
constexpr int shorter_tiles(std::int64_t groups, std::int64_t per_tile) {
  const std::int64_t tiles = (groups + per_tile - 1) / per_tile,
                     lacking = tiles * per_tile - groups;
  return lacking < tiles ? static_cast<int>(lacking) : 0;
}

/// Where all items are equally long.
constexpr std::int64_t section_of_equals(std::int64_t head_bytes, std::int64_t group,
                                         std::int64_t heads) {
  const std::int64_t groups = kSectionBytes / (std::max<std::int64_t>(head_bytes, 1) * group);
  return std::min(std::max<std::int64_t>(groups, 1) * group, heads);
}

/// Where lengths fall along the order, blocks' shares are even over pairs of rounds: a section
/// holds whole pairs, if need be of more than half of L2. Where not even one fits, it is all heads.
/// head_items: a head's, of all its tiles of rows and their splits.
constexpr std::int64_t section_by_length(std::int64_t head_bytes, std::int64_t group,
                                         std::int64_t heads, std::int64_t head_items,
                                         std::int64_t blocks) {
  const std::int64_t pair = std::lcm(std::lcm(head_items, 2 * blocks) / head_items, group);
  const std::int64_t pair_bytes = std::max<std::int64_t>(head_bytes * pair, 1);
  if (pair_bytes > kMostSectionBytes) return heads;
  return std::min(std::max<std::int64_t>(kSectionBytes / pair_bytes, 1) * pair, heads);
}

}  // namespace octavo::sm90
