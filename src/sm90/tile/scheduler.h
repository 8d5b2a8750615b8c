// SPDX-License-Identifier: Apache-2.0
// Which tile of query rows a thread block takes next.
//
// Items are ordered in sections of heads whose K and V fit L2 together; inside a section, the last
// query rows, which see most keys under a causal mask, come first. Thread block x takes one item of
// each round of gridDim.x items, x forwards in even rounds and backwards in odd ones: with lengths
// that fall along the order, the sums come out nearly equal.
//
// Without a mask a head's tiles are equally long, but for the last one, where the rows are no
// multiple of a tile's. Those remainders of all heads may come after all whole tiles: thread blocks
// that would have had a whole tile more than others then have a few remainders instead.
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
  int at_end = 0;   // tiles of each head, its last ones, that come after all others

  constexpr int items() const { return m_blocks * heads * batches * splits; }

  /// The index of a thread block's item of this round; items() or more where it has none.
  constexpr int index(int block, int blocks, int round) const {
    return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
  }

  constexpr WorkItem at(int index) const {
    const int all_heads = heads * batches, tile = index / splits;
    const int whole = m_blocks - at_end, whole_tiles = whole * all_heads;
    return tile < whole_tiles ? in_sections(tile, 0, whole, index % splits)
                              : in_sections(tile - whole_tiles, whole, at_end, index % splits);
  }

 private:
  /// Tile `tile` of those that each head has in rows [m_block, m_block + count) of tiles.
  constexpr WorkItem in_sections(int tile, int m_block, int count, int split) const {
    const int all_heads = heads * batches, per_section = section * count;
    const int first = tile / per_section * section;
    const int width = all_heads - first < section ? all_heads - first : section;
    const int within = tile % per_section, head = first + within % width;
    return {m_block + count - 1 - within / width, head % heads, head / heads, split};
  }
};

// How many heads a section should have, of `heads` query heads over all batches, `group` of which
// share K and V; head_bytes: K's and V's for one query head. Of L2's 50 MB, sections get what
// measured best.
inline constexpr std::int64_t kSectionBytes = 24 << 20, kMostSectionBytes = 34 << 20;

/// How many of a head's tiles to leave to the end, `remainder`: whether the last one is shorter.
/// One where whole tiles alone take a round less; not where heads have few tiles, since K and V are
/// read again for it.
constexpr int tiles_at_end(std::int64_t m_blocks, bool remainder, std::int64_t heads,
                           std::int64_t blocks) {
  constexpr std::int64_t kFew = 8;
  if (!remainder || m_blocks < kFew) return 0;
  const auto rounds = [&](std::int64_t tiles) { return (tiles * heads + blocks - 1) / blocks; };
  return rounds(m_blocks - 1) < rounds(m_blocks) ? 1 : 0;
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
