// SPDX-License-Identifier: Apache-2.0
// The producer warp: takes work items, and copies Q, K, V^T and their descales to shared memory.
#pragma once

#include "sm90/attention/args.h"
#include "sm90/attention/baton.cuh"
#include "sm90/attention/pv.cuh"
#include "sm90/attention/shared.h"
#include "sm90/attention/visible.cuh"
#include "sm90/ptx/grid_dependency.cuh"
#include "sm90/ptx/tma.cuh"
#include "sm90/tile/cluster.cuh"
#include "sm90/tile/pipeline.cuh"

namespace octavo::sm90 {

/// Descales of the keys of a tile, four a lane, on their way to shared memory.
class KeyDescales {
 public:
  /// One descale a key; 0 past the last valid one, whatever stands there.
  __device__ void load(const float* from, std::int64_t stride, int keys, int key, int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = key + 32 * i + lane;
      value_[i] = at < keys ? from[at * stride] : 0.0f;
    }
  }
  __device__ void store(float* to, int lane) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[32 * i + lane] = value_[i];
  }

 private:
  static constexpr int kCount = kBlockN / 32;
  float value_[kCount] = {};
};

/// Descales of the K and V of one head.
template <typename Traits>
class TileSource {
 public:
  __device__ TileSource(const AttentionArgs& args, int batch, int head, int keys)
      : args_(args),
        k_(Traits::k16Bit ? nullptr : args.k_descale.line(batch, head)),
        v_(Traits::k16Bit ? nullptr : args.v_descale.line(batch, head)),
        keys_(keys) {}

  /// Of the tile that begins at `key`; `unit` is that of O.
  __device__ TileNote note(int key, OutputUnit& unit) const {
    TileNote note{1.0f, 1.0f, 1.0f, 1.0f};
    if constexpr (Traits::k16Bit) return note;
    if (!args_.k_per_key) note.k_descale = args_.k_descale.at(k_, key);
    if constexpr (Traits::Scores::kFoldsV) return note;  // rows have units of their own
    // Approximate divisions want it normal, and its reciprocal too.
    const float descale = args_.v_descale.at(v_, key);
    const UnitChange change =
        change_unit(unit, descale < 0x1p-126f ? 0.0f : fminf(descale, 0x1p126f));
    note.keep = change.keep;
    note.add = change.add;
    note.unit = unit.now;
    return note;
  }

  __device__ void load_k(KeyDescales& descales, int key, int lane) const {
    descales.load(k_, args_.k_descale.stride_block, keys_, key, lane);
  }
  __device__ void load_v(KeyDescales& descales, int key, int lane) const {
    descales.load(v_, args_.v_descale.stride_block, keys_, key, lane);
  }

 private:
  const AttentionArgs& args_;
  const float *k_, *v_;
  const int keys_;
};

template <typename Traits>
class Producer {
 public:
  __device__ Producer(const AttentionArgs& args, Shared<Traits>& shared)
      : args_(args), shared_(shared), lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    ptx::wait_for_launch_before();  // consumers read nothing but what comes from here
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    for (int round = 0;; ++round) {
      const Turn turn =
          args_.schedule.turn(block / Traits::kCluster, blocks / Traits::kCluster, round);
      if (turn.slot == Turn::kEnd) break;
      if (turn.slot == Turn::kNothing) continue;
      const WorkItem item = args_.schedule.at(turn.slot);
      if (item.m_block != kNoItem) load_item(item, turn.leg);
    }
    finish();
    Cluster::sync_end();
  }

 private:
  using Cluster = sm90::Cluster<Traits::kCluster>;

  // Rows of 16 bits have no unit.
  static constexpr bool kHasUnit = Traits::kRelays && !Traits::k16Bit;

  __device__ Baton<Traits> baton(int index) const { return {args_, index, Cluster::rank()}; }

  /// Consumers have little left to do when the item before has been loaded: queries come first, or
  /// where they have one place, which falls free late, a key tile.
  __device__ void load_item(const WorkItem& item, const Leg& leg) {
    // Rows of the whole cluster, which take the same key tiles, and of this thread block.
    const int first_row = item.m_block * Traits::kItemRows - args_.lead;
    const int m = first_row + Cluster::rank() * Traits::kBlockRows;
    if constexpr (Traits::kQStages > 1) load_q(item, m);
    const int keys = args_.keys(item.batch), head = args_.group.quotient(item.head);
    const KernelMask mask = mask_of(args_, keys);
    const TileRange tiles =
        leg_of(tiles_of<Traits::kBlockN>(mask, first_row, Traits::kItemRows,
                                         split_of<Traits::kBlockN>(args_, keys, item.split)),
               leg);
    const TileSource<Traits> source(args_, item.batch, head, keys);
    OutputUnit unit;
    int n = tiles.last - 1;  // from the last to the first
    const auto load_next = [&] {
      load_tile(source, unit, item.batch, head, keys, n-- * Traits::kBlockN);
    };
    if constexpr (Traits::kQStages == 1) {
      if (n >= tiles.first) load_next();
      load_q(item, m);
    }
    leave_notes(item, leg.baton, mask, m, tiles);
    ptx::mbarrier_arrive(&shared_.q_full[q_.stage()]);
    q_.advance();
    const int note = notes_.stage();
    notes_.advance();
    take_unit(unit, note);
    while (n >= tiles.first) load_next();
    hand_unit(unit, note);
  }

  /// Of the item whose notes are there, rather than in a register until now.
  __device__ int baton_of(int note) const {
    __syncwarp();
    return shared_.item[note].baton;
  }
  __device__ void take_unit(OutputUnit& unit, int note) const {
    if constexpr (!kHasUnit) return;
    if (const int index = baton_of(note); index < 0) baton(-index).take_unit(unit);
  }
  __device__ void hand_unit(const OutputUnit& unit, int note) const {
    if constexpr (!kHasUnit) return;
    if (const int index = baton_of(note); index > 0) baton(index).hand_unit(unit);
  }

  /// What consumers know of the item.
  __device__ void leave_notes(const WorkItem& item, int baton, const KernelMask& mask, int m,
                              const TileRange& tiles) {
    const int stage = notes_.stage();
    if (lane_ == 0) {
      shared_.item[stage] = {m,       item.head,   item.batch, item.split,
                             mask.sk, tiles.first, tiles.last, baton};
    }
    if (lane_ < Traits::kConsumers) {
      const int first_row = m + lane_ * kWarpgroupRows;
      shared_.walk[stage][lane_] = walk_of<Traits::kBlockN>(mask, first_row, kWarpgroupRows, tiles);
    }
    const float* descales = Traits::k16Bit ? nullptr : args_.q_descale.line(item.batch, item.head);
    const float* shifts = args_.score_shift.at(item.batch, item.head, 0);
    // All loads before the first store: their latencies then pass together.
    RowNote notes[Traits::kBlockRows / 32] = {};
#pragma unroll
    for (int i = 0; i < Traits::kBlockRows / 32; ++i) {
      const int row = m + 32 * i + lane_;
      if (!is_row(args_, row)) continue;
      notes[i].q_descale = Traits::k16Bit ? 1.0f : args_.q_descale.at(descales, row);
      if (args_.score_shift.data != nullptr) {
        notes[i].shift = shifts[row * args_.score_shift.stride_s];
      }
    }
#pragma unroll
    for (int i = 0; i < Traits::kBlockRows / 32; ++i) {
      shared_.rows[stage][i / 2][i % 2 * 32 + lane_] = notes[i];
    }
  }

  __device__ void load_q(const WorkItem& item, int m) {
    ptx::mbarrier_wait(&shared_.q_empty[q_.stage()], q_.empty_phase());
    if (lane_ != 0) return;
    std::uint64_t* full = &shared_.q_full[q_.stage()];
    ptx::mbarrier_expect_tx(full, Shared<Traits>::kQBytes);
    for (int wg = 0; wg < Traits::kConsumers; ++wg) {
      for (int piece = 0; piece < Traits::kPieces; ++piece) {
        ptx::tma_load_4d(shared_.q[q_.stage()][wg][piece], &args_.q, full, piece * 128,
                         m + wg * kWarpgroupRows, item.head, item.batch);
      }
    }
  }

  /// Descales of a tile are fetched before its place in shared memory falls free: consumers wait
  /// for what happens from then on.
  __device__ void load_tile(const TileSource<Traits>& source, OutputUnit& unit, int batch, int head,
                            int keys, int key) {
    const TileNote note = source.note(key, unit);
    KeyDescales k, v;
    if constexpr (Traits::kPerKey) {
      if (args_.k_per_key) source.load_k(k, key, lane_);
    }
    if constexpr (Traits::Scores::kFoldsV) source.load_v(v, key, lane_);
    const int stage = kv_.stage();
    ptx::mbarrier_wait(&shared_.k_empty[stage], kv_.empty_phase());
    if constexpr (Traits::kPerKey) {
      if (args_.k_per_key) k.store(shared_.k_descale[stage], lane_);
    }
    if constexpr (Traits::kApart) {
      load_k(batch, head, key, note, Shared<Traits>::kKBytes);
      ptx::mbarrier_wait(&shared_.v_empty[stage], kv_.empty_phase());
    }
    if constexpr (Traits::Scores::kFoldsV) v.store(shared_.v_descale[stage], lane_);
    const bool cleared = Traits::k16Bit && keys < args_.sk && key + Traits::kBlockN > keys;
    if (cleared) load_v_cleared(batch, head, key, keys);
    const std::uint32_t v_bytes = cleared ? 0 : Shared<Traits>::kVBytes;
    if constexpr (!Traits::kApart) {
      load_k(batch, head, key, note, Shared<Traits>::kKBytes + v_bytes);
    }
    announce_v(v_bytes);
    if (!cleared) load_v<Cluster>(batch, head, key, v_full());
    kv_.advance();
    __syncwarp();  // lanes wait for one phase at a time
  }

  /// `bytes`: that the barrier is to wait for.
  __device__ void load_k(int batch, int head, int key, const TileNote& note, std::uint32_t bytes) {
    const int stage = kv_.stage();
    std::uint64_t* full = &shared_.k_full[stage];
    if (lane_ == 0) {
      shared_.tile[stage] = note;
      ptx::mbarrier_arrive_expect_tx(full, bytes);
      for (int piece = 0; piece < Traits::kPieces; ++piece) {
        Cluster::load(piece, shared_.k[stage][piece], &args_.k, full, piece * 128, key, head,
                      batch);
      }
    } else if (Traits::kKWriters > 1) {
      ptx::mbarrier_arrive(full);
    }
  }

  __device__ std::uint64_t* v_full() {
    return Traits::kApart ? &shared_.v_full[kv_.stage()] : &shared_.k_full[kv_.stage()];
  }

  /// Arrives at V's barrier, if it has one of its own.
  __device__ void announce_v(std::uint32_t bytes) {
    if constexpr (!Traits::kApart) return;
    if (lane_ == 0) {
      ptx::mbarrier_arrive_expect_tx(v_full(), bytes);
    } else if (Traits::kVWriters > 1) {
      ptx::mbarrier_arrive(v_full());
    }
  }

  /// Blocks: the Cluster whose thread blocks the tile is copied to.
  template <typename Blocks>
  __device__ void load_v(int batch, int head, int key, std::uint64_t* full) {
    if (lane_ != 0) return;
    std::uint8_t* to = shared_.v[kv_.stage()];
    if constexpr (Traits::k16Bit) {
      for (int piece = 0; piece < Traits::kVPieces; ++piece) {
        Blocks::load(piece + 1, to + piece * Traits::kBlockN * 128, &args_.v, full, piece * 128,
                     key, head, batch);
      }
    } else {
      Blocks::load(1, to, &args_.v, full, key, 0, head, batch);
    }
  }

  /// 16 bits: a tile of V that ends past the last valid key. What stands there may be anything, and
  /// 0 times that is not always 0: its rows are cleared before consumers see the tile, in each
  /// thread block by itself.
  __device__ void load_v_cleared(int batch, int head, int key, int keys) {
    if (lane_ == 0) ptx::mbarrier_arrive_expect_tx(&shared_.v_landed, Shared<Traits>::kVBytes);
    load_v<sm90::Cluster<1>>(batch, head, key, &shared_.v_landed);
    ptx::mbarrier_wait(&shared_.v_landed, landings_++ & 1);
    const int first = (keys - key) * 128 / 16;  // units of 16 bytes of a piece
    for (int piece = 0; piece < Traits::kVPieces; ++piece) {
      auto* units =
          reinterpret_cast<uint4*>(shared_.v[kv_.stage()]) + piece * Traits::kBlockN * 128 / 16;
      for (int i = first + lane_; i < Traits::kBlockN * 128 / 16; i += 32) units[i] = uint4{};
    }
    ptx::fence_proxy_async();
    __syncwarp();
  }

  /// Tells the consumers that there is no more.
  __device__ void finish() {
    ptx::mbarrier_wait(&shared_.q_empty[q_.stage()], q_.empty_phase());
    if (lane_ == 0) shared_.item[notes_.stage()].m = kNoItem;
    ptx::mbarrier_arrive(&shared_.q_full[q_.stage()]);
  }

  const AttentionArgs& args_;
  Shared<Traits>& shared_;
  const int lane_;
  RingState<Traits::kQStages> q_;
  RingState<kNoteStages> notes_;
  std::uint32_t landings_ = 0;  // of v_landed
  RingState<Traits::kStages> kv_;
};

}  // namespace octavo::sm90
