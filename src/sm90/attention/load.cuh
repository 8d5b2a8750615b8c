// SPDX-License-Identifier: Apache-2.0
// The producer warp: takes work items, and copies Q, K, V^T and their descales to shared memory.
#pragma once

#include "sm90/attention/args.h"
#include "sm90/attention/pv.cuh"
#include "sm90/attention/shared.h"
#include "sm90/attention/visible.cuh"
#include "sm90/ptx/tma.cuh"
#include "sm90/tile/pipeline.cuh"

namespace octavo::sm90 {

template <typename Traits>
class Producer {
 public:
  __device__ Producer(const AttentionArgs& args, Shared<Traits>& shared)
      : args_(args), shared_(shared), lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    for (int round = 0;; ++round) {
      const int index = args_.schedule.index(block, blocks, round);
      if (index >= args_.schedule.items()) break;
      load_item(index);
    }
    finish();
  }

 private:
  __device__ void load_item(int index) {
    const WorkItem item = args_.schedule.at(index);
    const WindowMask mask = mask_of(args_, item.batch);
    const int m = item.m_block * Traits::kBlockM;
    ptx::mbarrier_wait(&shared_.q_empty[q_.stage()], q_.empty_phase());
    if (lane_ == 0) load_q(index, item, m);
    q_.advance();
    unit_ = 0;
    const TileRange tiles = tiles_of(mask, m, Traits::kBlockM);
    for (int n = tiles.last - 1; n >= tiles.first; --n) load_kv(item, n);
  }

  __device__ void load_q(int index, const WorkItem& item, int m) {
    std::uint64_t* full = &shared_.q_full[q_.stage()];
    shared_.item[q_.stage()] = index;
    ptx::mbarrier_arrive_expect_tx(full, Shared<Traits>::kQBytes);
    for (int wg = 0; wg < Traits::kConsumers; ++wg) {
      for (int piece = 0; piece < Traits::kPieces; ++piece) {
        ptx::tma_load_4d(shared_.q[q_.stage()][wg][piece], &args_.q, full, piece * 128,
                         m + wg * kWarpgroupRows, item.head, item.batch);
      }
    }
  }

  __device__ void load_kv(const WorkItem& item, int n) {
    const int head = item.head / args_.group, key = n * kBlockN, stage = kv_.stage();
    ptx::mbarrier_wait(&shared_.kv_empty[stage], kv_.empty_phase());
    if constexpr (Traits::Scores::kGeneral) {
      if (args_.k_per_key) {
        load_descales(args_.k_descale, shared_.k_descale[stage], item.batch, head, key);
      }
    }
    if constexpr (Traits::Scores::kFoldsV) {
      load_descales(args_.v_descale, shared_.v_descale[stage], item.batch, head, key);
    }
    if (lane_ == 0) shared_.tile[stage] = note_of_tile(item.batch, head, key);
    __syncwarp();
    if (lane_ == 0) {
      std::uint64_t* full = &shared_.kv_full[stage];
      ptx::mbarrier_arrive_expect_tx(full, Shared<Traits>::kKvBytes);
      for (int piece = 0; piece < Traits::kPieces; ++piece) {
        ptx::tma_load_4d(shared_.k[stage][piece], &args_.k, full, piece * 128, key, head,
                         item.batch);
      }
      ptx::tma_load_4d(shared_.v[stage], &args_.v, full, key, 0, head, item.batch);
    }
    kv_.advance();
  }

  /// One descale a key; 0 past the last valid one, whatever stands there.
  __device__ void load_descales(const DescaleMap& map, float* to, int batch, int head, int key) {
    const int keys = args_.keys(batch);
    const float* from = map.data + batch * map.stride_b + head * map.stride_h;
    const int stride = static_cast<int>(map.stride_block);
#pragma unroll 1
    for (int i = lane_; i < kBlockN; i += 32) {
      to[i] = key + i < keys ? from[std::int64_t{key + i} * stride] : 0.0f;
    }
  }

  __device__ TileNote note_of_tile(int batch, int head, int key) {
    TileNote note{1.0f, 1.0f, 1.0f, 1.0f};
    if (!args_.k_per_key) note.k_descale = args_.k_descale.at(batch, head, key);
    if constexpr (Traits::Scores::kFoldsV) return note;  // rows have units of their own
    const UnitChange change = change_unit(unit_, args_.v_descale.at(batch, head, key));
    note.keep = change.keep;
    note.add = change.add;
    note.unit = unit_;
    return note;
  }

  /// Tells the consumers that there is no more.
  __device__ void finish() {
    ptx::mbarrier_wait(&shared_.q_empty[q_.stage()], q_.empty_phase());
    if (lane_ == 0) {
      shared_.item[q_.stage()] = kNoItem;
      ptx::mbarrier_arrive(&shared_.q_full[q_.stage()]);
    }
  }

  const AttentionArgs& args_;
  Shared<Traits>& shared_;
  const int lane_;
  RingState<Traits::kQStages> q_;
  RingState<Traits::kStages> kv_;
  float unit_ = 0;  // of O; 0 before the first tile
};

}  // namespace octavo::sm90
