// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 query rows through the stages qk .. epilogue, key tile by key tile from
// the last to the first. An early attention sink then meets P of the other keys already summed,
// instead of pushing them under E4M3's smallest value.
#pragma once

#include "sm90/attention/baton.cuh"
#include "sm90/attention/epilogue.cuh"
#include "sm90/tile/cluster.cuh"
#include "sm90/tile/pipeline.cuh"
#include "sm90/tile/turns.cuh"

namespace octavo::sm90 {

template <typename Traits>
class Consumer {
 public:
  __device__ Consumer(const AttentionArgs& args, Shared<Traits>& shared)
      : args_(args),
        shared_(shared),
        words_(shared),
        warpgroup_(ptx::uniform(static_cast<int>(threadIdx.x) / kWarpgroupThreads)),
        turns_(warpgroup_) {}

  __device__ void run() {
    turns_.begin();
    while (true) {
      ptx::mbarrier_wait(&shared_.q_full[q().stage()], q().phase());
      if (item().m == kNoItem) break;
      queries_.begin(shared_.q[q().stage()][warpgroup_][0], words_.q(q().stage(), warpgroup_));
      if constexpr (Traits::k16Bit) {
        attend_ahead();
      } else {
        attend();
      }
      ++items_;
    }
    ptx::tma_store_wait<0>();  // they read shared memory
    Cluster::sync_end();
  }

 private:
  using Cluster = sm90::Cluster<Traits::kCluster>;
  using KvRing = RingState<Traits::kStages>;

  /// All key tiles of one work item, of which other warpgroups may see some that this one does not.
  __device__ void attend() {
    const WalkNote& walk = shared_.walk[note()][warpgroup_];
    const int first = ptx::uniform(item().first);  // of the item's tiles
    Output<Traits> out;
    SoftmaxState state;
    take_baton(out, state);
    int n = ptx::uniform(item().last);
    if (n > first) wait_for_k(kv_);
    turns_.take();
    for (const int end = ptx::uniform(walk.end[0]); n > end; --n) skip_tile(n > first + 1);
    // Where scores start early, one product more than there are tiles is made, of what happens to
    // be in shared memory: in a branch, the compiler would keep the registers of both of its sides.
    QkSum<Traits> sums[Traits::kScores];
    if constexpr (Traits::kStartsEarly) start(sums, kv_);
#pragma unroll 1
    for (int part = 0; part < 3; ++part) {
      const int end = ptx::uniform(walk.end[part + 1]);
      // General kernels, short of registers at d 256, read it again.
      const auto more = [&] { return n > (Traits::Scores::kGeneral ? walk.end[part + 1] : end); };
      for (; more(); --n) step(out, state, sums, n - 1, first, part != 1);
    }
    if constexpr (Traits::kStartsEarly) {
      ptx::wgmma_wait<0>();
      ptx::pin(sums);
    }
    for (; n > first; --n) skip_tile(n > first + 1);
    turns_.pass();
    finish_item(out, state);
  }

  /// 16 bits, where the tensor cores are what is waited for: Q K^T of the next tile goes before P V
  /// of this one, which is then under way during the next softmax.
  __device__ void attend_ahead() {
    const WalkNote& walk = shared_.walk[note()][warpgroup_];
    const int first = ptx::uniform(item().first);
    Output<Traits> out;
    out.unit[0].now = out.unit[1].now = 1.0f;
    SoftmaxState state;
    take_baton(out, state);
    int n = ptx::uniform(item().last);
    for (const int end = ptx::uniform(walk.end[0]); n > end; --n) skip_tile_ahead();
    if (n > ptx::uniform(walk.end[3])) {
      QkSum<Traits> sums[Traits::kScores];
      std::uint32_t p[Traits::kPWords];
      wait_for_k(kv_);
      turns_.take();
      start(sums, kv_);
      turns_.pass();
      const bool whole = n <= ptx::uniform(walk.end[1]) && n > ptx::uniform(walk.end[2]);
      weigh<false>(out, state, sums, p, --n, kv_, !whole);
#pragma unroll 1
      for (int part = 0; part < 3; ++part) {
        const int end = ptx::uniform(walk.end[part + 1]);
        while (n > end) step_ahead(out, state, sums, p, --n, part != 1);
      }
      leave_queries_early();
      wait_for_v();
      turns_.take();
      start_pv(out, p, words_.v(kv_.stage()));
      turns_.pass();
      finish_pv(out, p);
    } else {
      leave_queries_early();
      turns_.take();
      turns_.pass();
    }
    for (; n > first; --n) skip_tile_ahead();
    finish_item(out, state);
  }

  /// Where there is one tile of query rows, its successor comes during the last P V and the
  /// epilogue; notes have two places.
  __device__ void leave_queries_early() {
    if constexpr (Traits::kQStages == 1) release(&shared_.q_empty[q().stage()]);
  }

  /// As in Leg.
  __device__ int baton() const { return Traits::kRelays ? ptx::uniform(item().baton) : 0; }

  /// Goes on where the item's first leg ended, if this is the second.
  __device__ void take_baton(Output<Traits>& out, SoftmaxState& state) const {
    if (baton() < 0) Baton<Traits>(args_, -baton(), Cluster::rank()).take(out, state);
  }

  __device__ void finish_item(Output<Traits>& out, SoftmaxState& state) {
    if (baton() > 0) {
      Baton<Traits>(args_, baton(), Cluster::rank()).hand(out, state);
    } else {
      epilogue(out, state, item(), first_row(), rows(),
               OutputBuffers<Traits>(shared_, q().stage(), warpgroup_), args_);
    }
    if constexpr (Traits::kQStages > 1) release(&shared_.q_empty[q().stage()]);
  }

  __device__ void skip_tile_ahead() {
    turns_.take();
    turns_.pass();
    wait_for_k(kv_);
    release_tile(&shared_.k_empty[kv_.stage()]);
    wait_for_v();
    release_tile(&shared_.v_empty[kv_.stage()]);
    kv_.advance();
  }

  /// Starts Q K^T of key tile n and P V of the one before, and makes P of tile n.
  __device__ void step_ahead(Output<Traits>& out, SoftmaxState& state,
                             QkSum<Traits> (&sums)[Traits::kScores],
                             std::uint32_t (&p)[Traits::kPWords], int n, bool masked) {
    KvRing next = kv_;
    next.advance();
    wait_for_k(next);
    turns_.take();
    start(sums, next);
    wait_for_v();
    start_pv(out, p, words_.v(kv_.stage()));
    turns_.pass();
    weigh<true>(out, state, sums, p, n, next, masked);
  }

  /// P of key tile n, whose scores are under way, followed by P V of the tile before if kFollowed.
  template <bool kFollowed>
  __device__ void weigh(Output<Traits>& out, SoftmaxState& state,
                        QkSum<Traits> (&sums)[Traits::kScores], std::uint32_t (&p)[Traits::kPWords],
                        int n, const KvRing& tile, bool masked) {
    float factor[2];
    load_factors<Traits>(factor, rows(), args_, 1.0f);
    float s[Traits::kScores];
    finish_qk<Traits, kFollowed ? 1 : 0>(sums, s);
    release_tile(&shared_.k_empty[tile.stage()]);
    if constexpr (Traits::Scores::kGeneral) cap(s, factor, rows(), args_, 1.0f);
    if (masked) hide(s, mask_of(args_, item().keys), first_row(), n * Traits::kBlockN);
    float alpha[2];
    update_max<Traits>(s, factor, state, alpha);
    RoundedP<Traits> weights(factor, state);
    for_steps<0, Traits::kSteps>([&](auto step) { weights.template prepare<step>(s); });
    if constexpr (kFollowed) {
      finish_pv(out, p);
      rescale(out, alpha);
    } else if (baton() < 0) {
      rescale(out, alpha);
    }
    add_row_sums(out, alpha, weights);
    for_steps<0, Traits::kSteps>([&](auto step) { weights.template make<step>(s, p); });
    ptx::pin(p);
  }

  /// Waits for P V, the only product under way, and leaves its tile.
  __device__ void finish_pv(Output<Traits>& out, std::uint32_t (&p)[Traits::kPWords]) {
    ptx::wgmma_wait<0>();
    ptx::pin(out.o);
    ptx::pin(p);
    release_tile(&shared_.v_empty[kv_.stage()]);
    kv_.advance();
  }

  __device__ CountedRingState<Traits::kQStages> q() const { return {items_}; }
  __device__ int note() const { return CountedRingState<kNoteStages>{items_}.stage(); }
  __device__ const ItemNote& item() const { return shared_.item[note()]; }
  __device__ int first_row() const { return item().m + warpgroup_ * kWarpgroupRows; }
  __device__ const RowNote* rows() const { return shared_.rows[note()][warpgroup_]; }

  /// Key tile n, of which the mask hides a part if `masked`. Waits for the tile after it while its
  /// own last product is under way.
  __device__ void step(Output<Traits>& out, SoftmaxState& state,
                       QkSum<Traits> (&sums)[Traits::kScores], int n, int first, bool masked) {
    const int stage = kv_.stage();
    if constexpr (!Traits::kStartsEarly) start(sums, kv_);
    turns_.pass();
    const TileNote note = shared_.tile[stage];
    float factor[2];
    load_factors<Traits>(factor, rows(), args_, note.k_descale);
    float s[Traits::kScores];
    finish_qk<Traits>(sums, s);
    if constexpr (Traits::Scores::kGeneral) {
      transform(s, factor, rows(), args_, note.k_descale, shared_.k_descale[stage]);
    }
    if constexpr (Traits::kApart) release_tile(&shared_.k_empty[stage]);
    if (masked) hide(s, mask_of(args_, item().keys), first_row(), n * Traits::kBlockN);
    Promotion promotion;
    update_max<Traits>(s, factor, state, promotion.alpha);
    if constexpr (Traits::Scores::kFoldsV) {
      exponentiate<Traits>(s, factor, state);
      wait_for_v();
      fold(s, promotion, out, shared_.v_descale[stage]);
    } else {
      out.unit[0].now = out.unit[1].now = note.unit;
      set_unit(promotion, 0, {note.keep, note.add});
      set_unit(promotion, 1, {note.keep, note.add});
    }
    promotion.plain = __all_sync(0xffffffffu, promotion.plain);
    KvRing next = kv_;
    next.advance();
    pv(
        out, CodesOf<Traits>(factor, state), s, words_.v(stage), promotion, args_.once,
        [&] {
          if constexpr (!Traits::Scores::kFoldsV) wait_for_v();
        },
        [&] { turns_.take(); },
        [&] {
          if (n > first) wait_for_k(next);
        },
        [&] {
          if constexpr (Traits::kStartsEarly) start(sums, next);
        });
    release_tile(v_empty_of(stage));
    kv_ = next;
  }

  __device__ void start(QkSum<Traits> (&sums)[Traits::kScores], const KvRing& tile) {
    start_qk<Traits>(sums, queries_, words_.k(tile.stage()), args_.nothing);
  }

  /// Leaves a tile that no row here sees, once it is there: its barriers count every warp, so that
  /// skipped tiles are released too.
  __device__ void skip_tile(bool more) {
    turns_.pass();
    turns_.take();
    if constexpr (Traits::kApart) release_tile(&shared_.k_empty[kv_.stage()]);
    wait_for_v();
    release_tile(v_empty_of(kv_.stage()));
    kv_.advance();
    if (more) wait_for_k(kv_);
  }

  /// Folds descales of V per key into p. The product's row sums are then of folded weights, so the
  /// true ones are summed here.
  __device__ static void fold(float (&p)[Traits::kScores], Promotion& promotion,
                              Output<Traits>& out, const float* v_descale) {
    out.l[0] = __fmaf_rn(out.l[0], promotion.alpha[0], row_sum<0>(p));
    out.l[1] = __fmaf_rn(out.l[1], promotion.alpha[1], row_sum<1>(p));
    set_unit(promotion, 0, change_unit(out.unit[0], fold_row<0>(p, v_descale)));
    set_unit(promotion, 1, change_unit(out.unit[1], fold_row<1>(p, v_descale)));
  }

  __device__ void wait_for_k(const KvRing& tile) {
    ptx::mbarrier_wait(&shared_.k_full[tile.stage()], tile.phase());
  }

  __device__ void wait_for_v() {
    if constexpr (Traits::kApart) {
      ptx::mbarrier_wait(&shared_.v_full[kv_.stage()], kv_.phase());
    }
  }

  /// Released at the end of a tile: V's barrier, or the one of both.
  __device__ std::uint64_t* v_empty_of(int stage) {
    return Traits::kApart ? &shared_.v_empty[stage] : &shared_.k_empty[stage];
  }

  /// The place of K or V of a tile, in every thread block of the cluster.
  __device__ void release_tile(std::uint64_t* empty) {
    __syncwarp();
    Cluster::arrive(empty, threadIdx.x % 32 == 0);
  }

  /// One arrival a warp.
  __device__ void release(std::uint64_t* empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty);
  }

  const AttentionArgs& args_;
  Shared<Traits>& shared_;
  const OperandWords<Traits> words_;
  Queries<Traits> queries_;
  const int warpgroup_;
  const Turns<Traits::kShape.takes_turns> turns_;
  std::uint32_t items_ = 0;
  KvRing kv_;
};

}  // namespace octavo::sm90
