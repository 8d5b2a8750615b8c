// SPDX-License-Identifier: Apache-2.0
// Index maths of the Hopper kernels that needs no GPU: who owns which score, who takes which work
// item, and whether a kernel's shape fits registers and shared memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/kv_order.h"
#include "core/tile_table.h"
#include "sm90/attention/shared.h"
#include "sm90/attention/traits.h"
#include "sm90/divisor.h"
#include "sm90/tile/fragment.h"
#include "sm90/tile/scheduler.h"

namespace octavo::sm90 {
namespace {

// ---- Fragments

constexpr int kScores = kWarpgroupRows * kBlockN / kWarpgroupThreads;  // registers a thread

int row_of(int thread, int r) { return fragment_row(thread) + 8 * fragment_half(r); }
int column_of(int thread, int r) { return fragment_first_column(thread) + fragment_column(r); }

TEST(Sm90Fragment, EveryScoreHasOneOwner) {
  std::set<std::pair<int, int>> owned;
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    for (int r = 0; r < kScores; ++r) {
      const int row = row_of(thread, r), column = column_of(thread, r);
      EXPECT_TRUE(row >= 0 && row < kWarpgroupRows) << row;
      EXPECT_TRUE(column >= 0 && column < kBlockN) << column;
      EXPECT_TRUE(owned.emplace(row, column).second) << "(" << row << ", " << column << ") again";
    }
  }
  EXPECT_EQ(owned.size(), static_cast<std::size_t>(kWarpgroupRows * kBlockN));
}

TEST(Sm90Fragment, IsThatOfThePtxIsa) {
  // Thread 37 = warp 1, g 1, c 1; register 4 j + i is row 16 + 1 + 8 (i / 2), column 8 j + 2 + i
  // % 2.
  const std::array<std::pair<int, int>, 8> want = {
      {{17, 2}, {17, 3}, {25, 2}, {25, 3}, {17, 10}, {17, 11}, {25, 10}, {25, 11}}};
  for (int r = 0; r < 8; ++r) {
    EXPECT_EQ(row_of(37, r), want[static_cast<std::size_t>(r)].first) << r;
    EXPECT_EQ(column_of(37, r), want[static_cast<std::size_t>(r)].second) << r;
  }
  EXPECT_EQ(row_of(127, kScores - 1), 63);
  EXPECT_EQ(column_of(127, kScores - 1), 127);
}

TEST(Sm90Fragment, AQuadSharesARow) {
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    EXPECT_EQ(fragment_row(thread), fragment_row(thread / 4 * 4));
  }
}

/// Word 4 s + 2 v + half of thread c is, by the PTX ISA's fragment of an 8-bit A operand, row g + 8
/// half, k = 32 s + 16 v + 4 c + byte. V^T has key_at_position(k) there; so must P.
TEST(Sm90Fragment, OperandOfPTakesTheScoresOfTheKeysThatStandInV) {
  std::set<int> used;
  for (int word = 0; word < kScores / 4; ++word) {
    const int s = word / 4, v = word / 2 % 2, half = word % 2;
    for (int byte = 0; byte < 4; ++byte) {
      const int r = score_of_operand(word, byte);
      EXPECT_TRUE(r >= 0 && r < kScores && used.insert(r).second) << "word " << word;
      EXPECT_EQ(fragment_half(r), half) << "word " << word << ", byte " << byte;
      for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
        const int k = 32 * s + 16 * v + 4 * (thread % 4) + byte;
        EXPECT_EQ(column_of(thread, r), key_at_position(k)) << "thread " << thread << ", k " << k;
      }
    }
  }
}

// ---- Schedule

TEST(Sm90Fragment, UnitsLieWhereThe128ByteSwizzlePutsThem) {
  // Address bits 4 to 6 are exchanged by bits 7 to 9 (PTX ISA, "Shared Memory Matrix Layout").
  for (int row = 0; row < kWarpgroupRows; ++row) {
    for (int unit = 0; unit < 8; ++unit) {
      const int plain = row * 128 + unit * 16;
      EXPECT_EQ(swizzled_offset(row, unit), plain ^ (plain >> 3 & 0x70));
    }
  }
}

constexpr int kSms = 132;

/// The items of every block, in its order. As many rounds as the kernel takes.
std::vector<std::vector<WorkItem>> walk(const Schedule& schedule, int blocks) {
  std::vector<std::vector<WorkItem>> items(static_cast<std::size_t>(blocks));
  for (int block = 0; block < blocks; ++block) {
    for (int round = 0;; ++round) {
      const Turn turn = schedule.turn(block, blocks, round);
      if (turn.slot == Turn::kEnd) break;
      if (turn.slot == Turn::kNothing) continue;
      const WorkItem item = schedule.at(turn.slot);
      if (item.m_block != kNoItem) items[static_cast<std::size_t>(block)].push_back(item);
    }
  }
  return items;
}

/// What a schedule is made of.
struct Order {
  int m_blocks, heads, batches;
  Sections sections;
  int splits = 1, at_end = 0;

  Schedule schedule() const { return {m_blocks, heads, batches, sections, splits, at_end}; }
  int items() const { return m_blocks * heads * batches * splits; }
};

/// Orders with sections that divide the heads and such that do not, of one head and of all.
std::vector<Order> orders() {
  std::vector<Order> all;
  for (const int m_blocks : {1, 2, 7, 32}) {
    for (const auto& [heads, batches] : {std::pair{1, 1}, {5, 1}, {6, 3}, {16, 2}}) {
      for (const int section : {1, 2, 3, 4, 7, heads * batches, heads * batches + 5}) {
        for (const int splits : {1, 3}) {
          for (const int at_end : {0, 1, 2}) {
            if (at_end < m_blocks) {
              all.push_back({m_blocks, heads, batches, {section, 0}, splits, at_end});
            }
          }
          for (const int empty : {1, 17}) {
            all.push_back({m_blocks, heads, batches, {section, empty}, splits, 0});
          }
        }
      }
    }
  }
  return all;
}

testing::Message described(const Order& x, int blocks) {
  return testing::Message() << x.m_blocks << " tiles of rows, " << x.heads << " heads, "
                            << x.batches << " batches, sections of " << x.sections.heads << " and "
                            << x.sections.empty << " empty slots, " << x.splits << " splits, "
                            << x.at_end << " at the end, " << blocks << " blocks";
}

TEST(Sm90Scheduler, EveryTileIsTakenOnce) {
  for (const Order& order : orders()) {
    const Schedule schedule = order.schedule();
    EXPECT_EQ(schedule.items(), order.items());
    for (const int blocks : {1, 2, 3, 8, kSms, order.items()}) {
      SCOPED_TRACE(described(order, blocks));
      std::set<std::tuple<int, int, int, int>> taken;
      int count = 0;
      for (const auto& items : walk(schedule, blocks)) {
        for (const WorkItem& item : items) {
          EXPECT_TRUE(item.m_block >= 0 && item.m_block < order.m_blocks);
          EXPECT_TRUE(item.head >= 0 && item.head < order.heads);
          EXPECT_TRUE(item.batch >= 0 && item.batch < order.batches);
          EXPECT_TRUE(item.split >= 0 && item.split < order.splits);
          taken.emplace(item.m_block, item.head, item.batch, item.split);
          ++count;
        }
      }
      EXPECT_EQ(count, order.items());
      EXPECT_EQ(taken.size(), static_cast<std::size_t>(order.items()));
    }
  }
}

TEST(Sm90Scheduler, NothingIsAnOrderToo) {
  EXPECT_EQ(Schedule().slots(), 0);
  EXPECT_EQ(Schedule().items(), 0);
}

TEST(Sm90Scheduler, LastRowsComeFirstWithinASectionAndSectionsInOrder) {
  for (const Order& order : orders()) {
    SCOPED_TRACE(described(order, 1));
    if (order.at_end != 0) continue;
    const Schedule schedule = order.schedule();
    const int last = std::max(order.heads * order.batches / order.sections.heads - 1, 0);
    int section = 0, m_block = order.m_blocks;
    for (int slot = 0; slot < schedule.slots(); ++slot) {
      const WorkItem item = schedule.at(slot);
      if (item.m_block == kNoItem) {
        EXPECT_EQ(m_block, 0) << "an empty slot within a section";
        continue;
      }
      const int in_order = (item.batch * order.heads + item.head) / order.sections.heads;
      const int its = order.sections.empty > 0 ? std::min(in_order, last) : in_order;
      if (its != section) {
        EXPECT_EQ(its, section + 1);
        EXPECT_EQ(m_block, 0) << "the section before is not done";
        section = its;
        m_block = order.m_blocks;
      }
      EXPECT_LE(item.m_block, m_block);
      m_block = item.m_block;
    }
  }
}

TEST(Sm90Scheduler, TilesLeftToTheEndAreAHeadsLastOnes) {
  for (const Order& order : orders()) {
    SCOPED_TRACE(described(order, 1));
    if (order.sections.empty > 0) continue;
    const Schedule schedule = order.schedule();
    const int whole = order.m_blocks - order.at_end;
    const int whole_items = whole * order.heads * order.batches * order.splits;
    for (int slot = 0; slot < schedule.slots(); ++slot) {
      EXPECT_EQ(schedule.at(slot).m_block >= whole, slot >= whole_items);
    }
  }
}

TEST(Sm90Scheduler, RemaindersAtTheEndSaveARound) {
  // 128 heads of 4096 rows: 21 tiles of 192 rows and 64 rows, which cost two thirds of a tile.
  const auto most = [](int at_end) {
    const Schedule schedule{22, 32, 4, {48, 0}, 1, at_end};
    double longest = 0;
    for (const auto& items : walk(schedule, kSms)) {
      double sum = 0;
      for (const WorkItem& item : items) sum += item.m_block == 21 ? 2.0 / 3 : 1.0;
      longest = std::max(longest, sum);
    }
    return longest;
  };
  EXPECT_NEAR(most(0), 22, 1e-9);
  EXPECT_NEAR(most(1), 20 + 4.0 / 3, 1e-9);

  EXPECT_EQ(tiles_at_end(22, true, 128, kSms), 1);
  EXPECT_EQ(tiles_at_end(22, false, 128, kSms), 0);
  EXPECT_EQ(tiles_at_end(22, true, 64, kSms), 0);  // 11 rounds either way
  EXPECT_EQ(tiles_at_end(3, true, 512, kSms), 0);
}

// ---- Relay

/// All turns of a worker but the last, which says that there are no more.
std::vector<Turn> turns_of(const Relay& relay, int worker) {
  std::vector<Turn> turns;
  for (int round = 0;; ++round) {
    const Turn turn = relay.at(worker, round);
    if (turn.slot == Turn::kEnd) return turns;
    turns.push_back(turn);
  }
}

/// Of an item of `tiles`, in the order of the walk: [first, end).
std::pair<int, int> tiles_of(const Leg& leg, int tiles) {
  return {leg.takes() ? leg.cut : 0, leg.hands() ? leg.cut : tiles};
}

struct RelayCase {
  int items, tiles, workers;
};

std::vector<RelayCase> relay_cases() {
  std::vector<RelayCase> all;
  for (const int workers : {2, 3, 7, 66, kSms}) {
    for (const int items : {workers, workers + 1, 2 * workers - 1, 2 * workers, 7 * workers / 2,
                            1376, 1408, 10 * workers}) {
      for (const int tiles : {1, 2, 5, 32, 127, 128}) {
        if (items >= workers) all.push_back({items, tiles, workers});
      }
    }
  }
  return all;
}

testing::Message described(const RelayCase& x) {
  return testing::Message() << x.items << " items of " << x.tiles << " key tiles, " << x.workers
                            << " workers";
}

TEST(Sm90Relay, EveryKeyTileIsVisitedOnceAndSharesAreEqual) {
  for (const RelayCase& x : relay_cases()) {
    SCOPED_TRACE(described(x));
    const Relay relay(x.items, x.tiles, x.workers);
    ASSERT_TRUE(relay.is_on());
    std::vector<std::vector<int>> visits(static_cast<std::size_t>(x.items),
                                         std::vector<int>(static_cast<std::size_t>(x.tiles)));
    std::int64_t least = std::int64_t{x.items} * x.tiles, most = 0;
    for (int worker = 0; worker < x.workers; ++worker) {
      std::int64_t load = 0;
      for (const Turn& turn : turns_of(relay, worker)) {
        if (turn.slot == Turn::kNothing) continue;
        ASSERT_TRUE(turn.slot >= 0 && turn.slot < x.items);
        const auto [first, end] = tiles_of(turn.leg, x.tiles);
        for (int tile = first; tile < end; ++tile, ++load) {
          ++visits[static_cast<std::size_t>(turn.slot)][static_cast<std::size_t>(tile)];
        }
      }
      least = std::min(least, load);
      most = std::max(most, load);
    }
    EXPECT_LE(most - least, 1);
    for (const auto& item : visits) {
      for (const int count : item) ASSERT_EQ(count, 1);
    }
  }
}

TEST(Sm90Relay, ALegIsHandedToTheNextWorkersLastTurn) {
  for (const RelayCase& x : relay_cases()) {
    SCOPED_TRACE(described(x));
    const Relay relay(x.items, x.tiles, x.workers);
    for (int worker = 0; worker < x.workers; ++worker) {
      const std::vector<Turn> turns = turns_of(relay, worker);
      for (std::size_t i = 0; i < turns.size(); ++i) {
        const Leg& leg = turns[i].leg;
        if (leg.hands()) {
          EXPECT_EQ(i, 0U);
          EXPECT_TRUE(leg.cut > 0 && leg.cut < x.tiles);
          const Turn second = turns_of(relay, worker + 1).back();
          EXPECT_EQ(second.slot, turns[i].slot);
          EXPECT_EQ(second.leg.cut, leg.cut);
          EXPECT_EQ(second.leg.baton, -leg.baton);
          EXPECT_EQ(leg.baton, worker + 1);  // as many as workers: no two alike
        }
        if (leg.takes()) {
          EXPECT_EQ(i, turns.size() - 1);
          EXPECT_EQ(turns_of(relay, worker - 1).front().leg.baton, -leg.baton);
        }
      }
    }
  }
}

TEST(Sm90Relay, WorkersAreAtNeighbouringItems) {
  for (const RelayCase& x : relay_cases()) {
    SCOPED_TRACE(described(x));
    const Relay relay(x.items, x.tiles, x.workers);
    int next = 0;  // slots of whole items are taken in order, round by round
    for (int round = 1; next <= x.items - x.workers; ++round) {
      std::set<int> slots;
      for (int worker = 0; worker < x.workers; ++worker) {
        const Turn turn = relay.at(worker, round);
        if (turn.slot >= 0 && turn.slot <= x.items - x.workers) slots.insert(turn.slot);
      }
      ASSERT_FALSE(slots.empty());
      EXPECT_EQ(*slots.begin(), next);
      EXPECT_EQ(*slots.rbegin(), next + static_cast<int>(slots.size()) - 1);
      next += static_cast<int>(slots.size());
    }
  }
}

TEST(Sm90Relay, SavesTheRoundThatIsNotFull) {
  // 16k rows of 16 heads in tiles of 192, 128 key tiles each: 10.42 rounds instead of 11.
  const Relay relay(1376, 128, kSms);
  for (int worker = 0; worker < kSms; ++worker) {
    int load = 0;
    for (const Turn& turn : turns_of(relay, worker)) {
      if (turn.slot < 0) continue;
      const auto [first, end] = tiles_of(turn.leg, 128);
      load += end - first;
    }
    EXPECT_NEAR(load, 1376.0 / kSms * 128, 1);
  }
}

TEST(Sm90Scheduler, InARelayNothingIsLeftOut) {
  Schedule schedule(22, 16, 4, {6, 0});
  schedule.relay(32, kSms);
  std::set<std::tuple<int, int, int>> taken;
  for (const auto& items : walk(schedule, kSms)) {
    for (const WorkItem& item : items) taken.emplace(item.m_block, item.head, item.batch);
  }
  EXPECT_EQ(taken.size(), 22U * 16 * 4);
}

/// The most loaded block against the mean, where a tile of rows costs what it sees and `fixed`.
double imbalance(const Schedule& schedule, int blocks, int fixed = 0) {
  std::int64_t most = 0, sum = 0;
  for (const auto& items : walk(schedule, blocks)) {
    std::int64_t load = 0;
    for (const WorkItem& item : items) load += item.m_block + 1 + fixed;
    most = std::max(most, load);
    sum += load;
  }
  return static_cast<double>(most) * blocks / static_cast<double>(sum);
}

TEST(Sm90Scheduler, CausalLoadsAreEvenToFivePercent) {
  // 16k rows in tiles of 192: 86 of them; 16 heads twice.
  for (const int section : {8, 16, 32}) {
    EXPECT_LT(imbalance({86, 16, 2, {section, 0}}, kSms), 1.05) << "sections of " << section;
  }
}

TEST(Sm90Scheduler, SectionsUnderACausalMaskFitL2AndBalance) {
  constexpr std::int64_t kTokens = 16384, kHidden = 2048;
  for (const int rows : {128, 192}) {
    for (const std::int64_t bytes : {1, 2}) {
      for (const std::int64_t d : {64, 128, 256}) {
        for (std::int64_t s = 512; s <= kTokens; s *= 2) {
          for (const std::int64_t group : {1, 4}) {
            SCOPED_TRACE(testing::Message()
                         << "tiles of " << rows << " rows, " << bytes << " bytes, d " << d << ", s "
                         << s << ", group " << group);
            const std::int64_t heads = kTokens / s * kHidden / d, m_blocks = (s + rows - 1) / rows;
            const std::int64_t head_bytes = s * 2 * d * bytes / group;
            const Sections sections = causal_sections(head_bytes, group, heads, m_blocks, kSms);
            EXPECT_EQ(sections.heads % group, 0);
            if (sections.heads == heads) {
              EXPECT_EQ(sections.empty, 0);
            } else {
              EXPECT_EQ((sections.heads * m_blocks + sections.empty) % (2 * kSms), 0);
              EXPECT_LE(sections.heads * head_bytes, kMostSectionBytes);
            }
            const Schedule schedule{static_cast<int>(m_blocks), static_cast<int>(heads), 1,
                                    sections};
            EXPECT_LT(imbalance(schedule, kSms, 2), 1.15);
          }
        }
      }
    }
  }
}

TEST(Sm90Scheduler, TheLastSectionHasTheHeadsLeftOver) {
  for (const int heads : {11, 15, 23, 40, 61}) {
    SCOPED_TRACE(heads);
    constexpr std::int64_t kHeadBytes = 4 << 20;
    constexpr int kTiles = 64;
    const Sections sections = causal_sections(kHeadBytes, 1, heads, kTiles, kSms);
    EXPECT_EQ(sections.heads, 4);
    EXPECT_EQ(sections.empty, 8);
    const Schedule schedule{kTiles, heads, 1, sections};
    std::vector<int> tiles(static_cast<std::size_t>(heads));  // of each head so far
    std::size_t most = 0;                                     // heads begun and not done
    for (int slot = 0; slot < schedule.slots(); ++slot) {
      const WorkItem item = schedule.at(slot);
      if (item.m_block == kNoItem) continue;
      ++tiles[static_cast<std::size_t>(item.head)];
      const auto open = std::count_if(tiles.begin(), tiles.end(),
                                      [](int done) { return done > 0 && done < kTiles; });
      most = std::max(most, static_cast<std::size_t>(open));
    }
    EXPECT_LT(most, 8u);
    EXPECT_TRUE(std::all_of(tiles.begin(), tiles.end(), [](int done) { return done == kTiles; }));
  }
}

/// Every width, tried.
Sections best_of_all_widths(std::int64_t head_bytes, std::int64_t group, std::int64_t heads,
                            std::int64_t head_items) {
  Sections best{static_cast<int>(heads), 0};
  for (const std::int64_t bytes : {kSectionBytes, kMostSectionBytes}) {
    const std::int64_t most = most_in_section(bytes, head_bytes, group, heads);
    if (most == heads) return best;
    double fullest = 0.9;
    for (std::int64_t width = group; width <= most; width += group) {
      const std::int64_t items = width * head_items, pair = 2 * kSms;
      const std::int64_t slots = (items + pair - 1) / pair * pair;
      const double full = static_cast<double>(items) / static_cast<double>(slots);
      if (full < fullest) continue;
      fullest = full;
      best = {static_cast<int>(width), static_cast<int>(slots - items)};
    }
    if (best.heads < heads) return best;
  }
  return best;
}

TEST(Sm90Scheduler, NoWidthIsBetterThanTheOneChosen) {
  for (const std::int64_t group : {1, 3, 8}) {
    for (std::int64_t items = 1; items < 300; items += 7) {
      for (const std::int64_t kilobytes : {2, 100, 700, 3000, 9000, 40000}) {
        for (const std::int64_t groups : {1, 5, 64, 1000}) {
          const std::int64_t bytes = kilobytes << 10, heads = groups * group;
          const Sections got = causal_sections(bytes, group, heads, items, kSms);
          const Sections want = best_of_all_widths(bytes, group, heads, items);
          EXPECT_TRUE(got.heads == want.heads && got.empty == want.empty)
              << group << " a group, " << items << " items, " << kilobytes << " KB, " << heads
              << " heads: " << got.heads << ", " << want.heads;
        }
      }
    }
  }
}

TEST(Sm90Scheduler, SectionsUnderACausalMaskLeaveFewSlotsEmpty) {
  const auto expect = [](const Sections& x, int heads, int empty) {
    EXPECT_EQ(x.heads, heads);
    EXPECT_EQ(x.empty, empty);
  };
  expect(causal_sections(512 << 10, 1, 128, 8, kSms), 33, 0);  // 264 items, of 17 MB
  expect(causal_sections(2 << 20, 1, 64, 32, kSms), 8, 8);     // 256 items
  expect(causal_sections(4 << 20, 1, 32, 32, kSms), 8, 8);     // 32 MB: 6 heads would leave 72
  expect(causal_sections(1 << 20, 1, 64, 22, kSms), 24, 0);    // rather than 12
  expect(causal_sections(1 << 10, 1, 64, 22, kSms), 64, 0);    // all fit
  expect(causal_sections(20 << 20, 1, 16, 40, kSms), 16, 0);   // one head: most slots empty
}

TEST(Sm90Scheduler, SectionsOfEqualItemsFitL2AndHoldWholeGroups) {
  EXPECT_EQ(equal_sections(1 << 20, 1, 64).heads, 24);
  EXPECT_EQ(equal_sections(1 << 20, 5, 60).heads, 20);
  EXPECT_EQ(equal_sections(100 << 20, 8, 64).heads, 8);
  EXPECT_EQ(equal_sections(0, 2, 64).heads, 64);
}

TEST(Sm90Divisor, IsDivision) {
  for (const int d : {1, 2, 3, 5, 7, 22, 132, 264, 1000, (1 << 30) - 1, 1 << 30, 2147483647}) {
    const Divisor divisor(d);
    for (const std::int64_t near : {std::int64_t{0}, std::int64_t{d}, std::int64_t{d} * 7,
                                    std::int64_t{1} << 30, std::int64_t{2147483647}}) {
      for (std::int64_t n = near - 2; n <= near + 2; ++n) {
        if (n < 0 || n > 2147483647) continue;
        const int quotient = divisor.quotient(static_cast<int>(n));
        EXPECT_EQ(quotient, n / d) << n << " / " << d;
        EXPECT_EQ(divisor.remainder(static_cast<int>(n), quotient), n % d) << n << " % " << d;
      }
    }
  }
}

// ---- Shapes of kernels

template <typename Kernel>
void expect_fits() {
  SCOPED_TRACE(testing::Message() << "d " << Kernel::kHeadDim << ", dv " << Kernel::kHeadDimV
                                  << (Kernel::Scores::kGeneral ? ", general" : ", plain"));
  // Registers: setmaxnreg takes multiples of 8 from 24 to 256; the register file has 65,536.
  constexpr KernelShape kShape = Kernel::kShape;
  for (const int registers : {kShape.consumer_registers, kShape.producer_registers}) {
    EXPECT_EQ(registers % 8, 0);
    EXPECT_TRUE(registers >= 24 && registers <= 256) << registers;
  }
  EXPECT_LE(kWarpgroupThreads *
                (kShape.consumers * kShape.consumer_registers + kShape.producer_registers),
            65536);
  EXPECT_LE(Kernel::kThreads, 1024);
  EXPECT_EQ(Kernel::kBlockRows % octavo::kBlockM, 0) << "warpgroups skip tiles that kBlockM says";

  using Memory = Shared<Kernel>;
  EXPECT_LE(sizeof(Memory), kSharedMemoryLimit);
  static Memory memory;  // zeros that nobody touches; an object of its type knows where arrays lie
  const auto offset = [](const void* at) {
    return static_cast<const std::byte*>(at) - reinterpret_cast<const std::byte*>(&memory);
  };
  constexpr std::ptrdiff_t kSwizzle = 1024;
  for (int stage = 0; stage < Kernel::kQStages; ++stage) {
    for (int warpgroup = 0; warpgroup < Kernel::kConsumers; ++warpgroup) {
      for (int piece = 0; piece < Kernel::kPieces; ++piece) {
        EXPECT_EQ(offset(memory.q[stage][warpgroup][piece]) % kSwizzle, 0);
      }
    }
  }
  for (int stage = 0; stage < Kernel::kStages; ++stage) {
    for (const auto& piece : memory.k[stage]) EXPECT_EQ(offset(piece) % kSwizzle, 0);
    EXPECT_EQ(offset(memory.v[stage]) % kSwizzle, 0);
    if (Kernel::k16Bit) continue;
    EXPECT_EQ(offset(memory.v[stage] + Kernel::kHeadDimV * kBlockN) % kSwizzle, 0) << "the ones";
  }
  for (const auto& warpgroup : memory.out) {
    for (const auto& buffer : warpgroup) EXPECT_EQ(offset(buffer) % kSwizzle, 0);
  }
  EXPECT_EQ(offset(memory.tile) % 16, 0);
  EXPECT_EQ(offset(memory.q_full) % 8, 0);
  EXPECT_EQ(Memory::kQBytes, std::uint32_t{Kernel::kConsumers * kWarpgroupRows * 128} *
                                 std::uint32_t{Kernel::kPieces});
}

template <int kD, int kDv>
void expect_all_fit() {
  expect_fits<Traits<kD, kDv, DType::f8_e4m3, PlainScores>>();
  expect_fits<Traits<kD, kDv, DType::f8_e4m3, GeneralScores>>();
  expect_fits<Traits<kD, kDv, DType::f8_e4m3, FoldedScores>>();
  expect_fits<Traits<kD, kDv, DType::f8_e4m3, Direct<PlainScores>>>();
  expect_fits<Traits<kD, kDv, DType::i8, PlainScores>>();
  expect_fits<Traits<kD, kDv, DType::f8_e5m2, GeneralScores>>();
  expect_fits<Traits<kD, kDv, DType::f8_e5m2, FoldedScores>>();
  expect_fits<Traits<kD, kDv, DType::bf16, PlainScores>>();
  expect_fits<Traits<kD, kDv, DType::bf16, GeneralScores>>();
}

/// The pairs of head dims that kernels are built for (sm90/attention/launch.h).
TEST(Sm90KernelShape, FitsRegistersAndSharedMemoryOnSwizzleBoundaries) {
  expect_all_fit<64, 64>();
  expect_all_fit<96, 96>();
  expect_all_fit<128, 128>();
  expect_all_fit<192, 128>();
  expect_all_fit<192, 192>();
  expect_all_fit<256, 256>();
}

TEST(Sm90KernelShape, EveryHeadDimHasAShape) {
  for (const int d : kHeadDims) {
    for (const KernelShape& shape :
         {kernel_shape(d), direct_kernel_shape(d), general_kernel_shape(d), kernel_shape_16bit(d),
          general_kernel_shape_16bit(d)}) {
      EXPECT_GE(shape.consumers, 1) << d;
      EXPECT_GE(shape.stages, 2) << d;
    }
  }
}

}  // namespace
}  // namespace octavo::sm90
