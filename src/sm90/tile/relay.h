// SPDX-License-Identifier: Apache-2.0
// Equal shares of items that do not divide evenly. Where N items of T key tiles each are handed out
// whole, the busiest of B workers (thread blocks, or clusters of them) takes ceil(N / B), up to one
// more than its share. In a relay every worker visits N T / B key tiles, give or take one: some
// items are run in two legs by two workers, the second of which goes on with the registers that the
// first has left in memory (attention/baton.cuh), so that the result is the same, bit for bit.
//
//   all items in a row    | item 0 | item 1 | item 2 | item 3 | item 4 |    N = 5, B = 3
//   shares                |   worker 0     |   worker 1     |  worker 2 |
//
// The item across the boundary of workers w - 1 and w is w - 1's first work, and w's last: by then
// it has long been left. (McNaughton's wrap-around rule, 1959.) First legs wait for nobody, and all
// workers fit the device at once. Should something else hold multiprocessors, then it matters that
// w - 1 has the lower number: workers are assumed to begin in that order, as CUDA does without
// promising it, so that w never waits for a worker that cannot begin.
#pragma once

#include <cstdint>

#include "sm90/divisor.h"

namespace octavo::sm90 {

/// Which of an item's key tiles a worker visits: all of them, or those before or behind a cut,
/// counted in the order of the walk. Batons have numbers from 1 on.
struct Leg {
  int cut = 0;
  int baton = 0;  // that it hands over, the first leg; minus the one that it takes, the second

  constexpr bool hands() const { return baton > 0; }
  constexpr bool takes() const { return baton < 0; }
};

/// What a worker does next.
struct Turn {
  static constexpr int kNothing = -1, kEnd = -2;
  int slot = kEnd;  // of Schedule
  Leg leg;
};

class Relay {
 public:
  Relay() = default;
  /// Of items >= workers > 0; items * tiles < 2^31.
  constexpr Relay(int items, int tiles, int workers)
      : items_(items),
        workers_(workers),
        share_(static_cast<int>(std::int64_t{items} * tiles / workers)),
        rest_(static_cast<int>(std::int64_t{items} * tiles % workers)),
        least_(share_ / tiles - 1),
        tiles_(tiles),
        by_workers_(workers) {}

  constexpr bool is_on() const { return workers_ > 1; }
  /// The turn of a worker in a round: its first leg, whole items, its last leg, the end.
  constexpr Turn at(int worker, int round) const {
    const int next = worker + 1;
    if (round == 0) return next < workers_ ? first_leg(next) : Turn{Turn::kNothing, {}};
    const int before = first_whole(worker), whole = first_shared(next) - before;
    if (round - 1 < whole) return {slot_of(worker, before, round - 1), {}};
    return round - 1 == whole && worker > 0 ? last_leg(worker) : Turn{};
  }

 private:
  /// Where a worker's share begins, in key tiles.
  constexpr int begin(int worker) const {
    return worker * share_ + by_workers_.quotient(worker * rest_);
  }
  /// The item at a boundary, and how many of its tiles lie before that.
  constexpr int shared_item(int boundary) const { return tiles_.quotient(begin(boundary)); }
  constexpr int tiles_before(int boundary) const {
    return tiles_.remainder(begin(boundary), shared_item(boundary));
  }

  /// Items of a row: those before a worker's whole ones, and those before the next boundary.
  constexpr int first_whole(int worker) const { return worker == 0 ? 0 : shared_item(worker) + 1; }
  constexpr int first_shared(int boundary) const {
    return boundary == workers_ ? items_ : shared_item(boundary);
  }

  /// Shared items have the last slots.
  constexpr int slot_of_shared(int boundary) const { return items_ - workers_ + boundary; }

  /// Whole ones have the others, a round's next to each other: least_ rounds of all workers, and
  /// one of those with one more, who then count only each other.
  constexpr int slot_of(int worker, int before, int round) const {
    if (round < least_) return round * workers_ + worker;
    return least_ * workers_ + (before - worker) - worker * least_;
  }

  constexpr Turn first_leg(int boundary) const {
    const int tiles = tiles_before(boundary);
    if (tiles == 0) return {Turn::kNothing, {}};
    return {slot_of_shared(boundary), {tiles, boundary}};
  }
  constexpr Turn last_leg(int boundary) const {
    const int tiles = tiles_before(boundary);
    return {slot_of_shared(boundary), {tiles, tiles == 0 ? 0 : -boundary}};
  }

  int items_ = 0, workers_ = 0;
  int share_ = 0, rest_ = 0;  // N T = share B + rest
  int least_ = 0;             // whole items of any worker
  Divisor tiles_, by_workers_;
};

}  // namespace octavo::sm90
