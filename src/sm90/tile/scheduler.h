// SPDX-License-Identifier: Apache-2.0
// Which tile of query rows a thread block takes next; where blocks of a cluster take tiles together
// (cluster.cuh), "thread block" stands for such a cluster.
//
// Items stand in slots, and thread block x takes one slot of each round of as many slots, x
// forwards in even rounds and backwards in odd ones. Slots are ordered in sections of heads whose K
// and V fit L2 together; inside a section, the last query rows, which see most keys under a causal
// mask, come first. Lengths that fall along a section then sum to nearly equal shares over a pair
// of rounds, so that a section under a causal mask has whole pairs: some slots behind its last item
// are empty.
//
// Without a mask a head's tiles are equally long, but for the last one, where the rows are no
// multiple of a tile's. Those remainders of all heads may come after all whole tiles: thread blocks
// that would have had a whole tile more than others then have a few remainders instead. Or items
// change hands, so that all have the same to do (relay.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/quant_block.h"
#include "sm90/divisor.h"
#include "sm90/tile/relay.h"

namespace octavo::sm90 {

struct WorkItem {
  int m_block = 0;
  int head = 0;  // query head
  int batch = 0;
  int split = 0;  // of its keys
};

/// In place of a tile of rows, and of a first row: those are multiples of 64, also before row 0.
inline constexpr int kNoItem = -1;

/// Sections of heads, and the slots behind each that have no item.
struct Sections {
  int heads = 1;  // of a section, counted over batches; a multiple of the group
  int empty = 0;  // the last section, which then has the heads left over too, has none
};

/// The order of all items. The host works out what the producer warp, for which consumers wait
/// between two items, would divide by.
class Schedule {
 public:
  Schedule() = default;
  /// `heads`: query heads; `splits`: of the keys of each tile, items next to each other; `at_end`:
  /// tiles of each head, its last ones, that come after all others.
  constexpr Schedule(int m_blocks, int heads, int batches, Sections sections, int splits = 1,
                     int at_end = 0)
      : all_heads_(heads * batches),
        heads_(heads),
        width_(std::clamp(sections.heads, 1, std::max(all_heads_, 1))),
        empty_(sections.empty),
        sections_(std::max(empty_ > 0 ? all_heads_ / width_.value()
                                      : static_cast<int>(ceil_div(all_heads_, width_.value())),
                           1)),
        last_width_(all_heads_ - (sections_ - 1) * width_.value()),
        splits_(splits),
        whole_(tiles(0, m_blocks - at_end)),
        at_end_(tiles(m_blocks - at_end, at_end)) {}

  constexpr int splits() const { return splits_.value(); }
  constexpr int items() const { return (whole_.count + at_end_.count) * all_heads_ * splits(); }
  constexpr int slots() const { return whole_.slots + at_end_.slots; }

  /// Has items of this many key tiles each change hands among `workers`; of sections without empty
  /// slots, and no more workers than items.
  constexpr void relay(int tiles, int workers) { relay_ = Relay(items(), tiles, workers); }
  constexpr const Relay& relay() const { return relay_; }

  /// What a thread block takes in this round.
  constexpr Turn turn(int block, int blocks, int round) const {
    if (relay_.is_on()) return relay_.at(block, round);
    const int slot = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    return slot < slots() ? Turn{slot, {}} : Turn{};
  }

  /// An m_block of kNoItem: the slot is empty.
  constexpr WorkItem at(int slot) const {
    return slot < whole_.slots ? at(slot, whole_) : at(slot - whole_.slots, at_end_);
  }

 private:
  /// Tiles [first, first + count) of each head.
  struct Tiles {
    int first = 0, count = 0;
    int slots = 0;
    Divisor section;  // slots of a section
  };

  constexpr Tiles tiles(int first, int count) const {
    if (count == 0) return {};
    return {first, count, count * all_heads_ * splits() + (sections_ - 1) * empty_,
            Divisor(width_.value() * count * splits() + empty_)};
  }

  constexpr WorkItem at(int slot, const Tiles& tiles) const {
    const int section = std::min(tiles.section.quotient(slot), sections_ - 1);
    const int within = tiles.section.remainder(slot, section), tile = splits_.quotient(within);
    const Divisor& width = section == sections_ - 1 ? last_width_ : width_;
    const int row = width.quotient(tile);
    if (row >= tiles.count) return {kNoItem};
    const int head = section * width_.value() + width.remainder(tile, row);
    const int batch = heads_.quotient(head);
    return {tiles.first + tiles.count - 1 - row, heads_.remainder(head, batch), batch,
            splits_.remainder(within, tile)};
  }

  int all_heads_ = 0;
  Divisor heads_;
  Divisor width_;  // of a section, in heads
  int empty_ = 0;  // slots behind a section
  int sections_ = 1;
  Divisor last_width_;  // of the last section
  Divisor splits_;
  Tiles whole_, at_end_;
  Relay relay_;
};

// How many heads a section should have, of `heads` query heads over all batches, `group` of which
// share K and V; head_bytes: K's and V's for one query head. Of L2's 50 MB, sections get what
// measured best, and more only where no width within that fills its slots.
inline constexpr std::int64_t kSectionBytes = 24 << 20, kMostSectionBytes = 34 << 20;

/// How many of a head's tiles to leave to the end, `remainder`: whether the last one is shorter.
/// One where whole tiles alone take a round less; not where heads have few tiles, since K and V are
/// read again for it.
constexpr int tiles_at_end(std::int64_t m_blocks, bool remainder, std::int64_t heads,
                           std::int64_t blocks) {
  constexpr std::int64_t kFew = 8;
  if (!remainder || m_blocks < kFew) return 0;
  const auto rounds = [&](std::int64_t tiles) { return ceil_div(tiles * heads, blocks); };
  return rounds(m_blocks - 1) < rounds(m_blocks) ? 1 : 0;
}

/// The most heads whose K and V fit, in whole groups.
constexpr std::int64_t most_in_section(std::int64_t bytes, std::int64_t head_bytes,
                                       std::int64_t group, std::int64_t heads) {
  const std::int64_t groups = bytes / (std::max<std::int64_t>(head_bytes, 1) * group);
  return std::min(std::max<std::int64_t>(groups, 1) * group, heads);
}

/// Where all items are equally long.
constexpr Sections equal_sections(std::int64_t head_bytes, std::int64_t group, std::int64_t heads) {
  return {static_cast<int>(most_in_section(kSectionBytes, head_bytes, group, heads)), 0};
}

/// Under a causal mask: the width whose sections leave the fewest slots empty, the widest of those.
/// All heads in one section, if those were more than a few. The last section, with the heads left
/// over, may be nearly twice as wide. head_items: a head's, of all its tiles of rows and their
/// splits.
constexpr Sections causal_sections(std::int64_t head_bytes, std::int64_t group, std::int64_t heads,
                                   std::int64_t head_items, std::int64_t blocks) {
  constexpr double kLeastFull = 0.9;
  Sections best{static_cast<int>(heads), 0};
  for (const std::int64_t bytes : {kSectionBytes, kMostSectionBytes}) {
    const std::int64_t most = most_in_section(bytes, head_bytes, group, heads);
    if (most == heads) return best;
    double fullest = kLeastFull;
    for (std::int64_t slots = 2 * blocks;; slots += 2 * blocks) {
      const std::int64_t width = std::min(slots / head_items, most) / group * group;
      const double full = static_cast<double>(width * head_items) / static_cast<double>(slots);
      if (width > 0 && full >= fullest) {
        fullest = full;
        best = {static_cast<int>(width), static_cast<int>(slots - width * head_items)};
      }
      if (slots >= most * head_items) break;
    }
    if (best.heads < heads) break;
  }
  return best;
}

}  // namespace octavo::sm90
