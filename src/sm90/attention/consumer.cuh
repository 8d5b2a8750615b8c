// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 query rows through the stages qk .. epilogue, key tile by key tile from
// the last to the first. An early attention sink then meets P of the other keys already summed,
// instead of pushing them under E4M3's smallest value.
#pragma once

#include <type_traits>

#include "sm90/attention/epilogue.cuh"
#include "sm90/tile/pipeline.cuh"

namespace octavo::sm90 {

template <typename Traits>
class Consumer {
 public:
  __device__ Consumer(const AttentionArgs& args, Shared<Traits>& shared)
      : args_(args),
        shared_(shared),
        warp_(uniform(static_cast<int>(threadIdx.x) / 32)),
        warpgroup_(warp_ / 4) {}

  __device__ void run() {
    while (true) {
      ptx::mbarrier_wait(&shared_.q_full[q_.stage()], q_.phase());
      if (shared_.item[q_.stage()].m == kNoItem) break;
      attend();
      q_.advance();
    }
  }

 private:
  using KvRing = std::conditional_t<Traits::Scores::kGeneral, CountedRingState<Traits::kStages>,
                                    RingState<Traits::kStages>>;

  /// All key tiles of one work item.
  __device__ void attend() {
    Output<Traits> out;
    SoftmaxState state;
    const int first = item().first, last = item().last;
    if (first < last) wait_for(kv_);
    for (int n = last - 1; n >= first; --n) {
      const WalkNote walk = shared_.walk[q_.stage()][warpgroup_];
      KvRing next = kv_;
      next.advance();
      // Waits for the tile after this one while this one's last product is under way.
      const auto look_ahead = [&] {
        if (n > first) wait_for(next);
      };
      if (walk.first <= n && n < walk.last) {
        step(out, state, n * kBlockN, walk.first_full <= n && n < walk.last_full, look_ahead);
      } else {
        look_ahead();
      }
      release(&shared_.kv_empty[kv_.stage()]);
      kv_ = next;
    }
    epilogue(out, state, item(), warpgroup_, rows(), args_);
    release(&shared_.q_empty[q_.stage()]);
  }

  __device__ const ItemNote& item() const { return shared_.item[q_.stage()]; }
  __device__ const RowNote* rows() const { return shared_.rows[q_.stage()][warpgroup_]; }

  /// One key tile.
  template <typename Meanwhile>
  __device__ void step(Output<Traits>& out, SoftmaxState& state, int n, bool full,
                       Meanwhile meanwhile) {
    const int stage = kv_.stage();
    const TileNote note = shared_.tile[stage];
    float factor[2];
    load_factors(factor, rows(), args_, note.k_descale);
    float s[kScores];
    qk<Traits>(s, ptx::operand_word(shared_.q[q_.stage()][warpgroup_]),
               ptx::operand_word(shared_.k[stage]));
    if constexpr (Traits::Scores::kGeneral) {
      transform(s, factor, rows(), args_, note.k_descale,
                shared_.k_descale[stage]);
    }
    if (!full) hide(s, mask_of(args_, item().keys), item().m + warpgroup_ * kWarpgroupRows, n);
    Promotion promotion;
    update_max(s, factor, state, promotion.alpha);
    exponentiate<Traits::kShape.spreads_exponentials>(s, factor, state);
    if constexpr (Traits::Scores::kFoldsV) {
      fold(s, promotion, out, shared_.v_descale[stage]);
    } else {
      out.unit[0] = out.unit[1] = note.unit;
      set_unit(promotion, 0, {note.keep, note.add});
      set_unit(promotion, 1, {note.keep, note.add});
    }
    std::uint32_t p[kPWords];
    requantise_p(s, p);
    ptx::pin(p);
    pv(out, p, ptx::operand_word(shared_.v[stage]), promotion, meanwhile);
  }

  /// Folds descales of V per key into p. The product's row sums are then of folded weights, so the
  /// true ones are summed here.
  __device__ static void fold(float (&p)[kScores], Promotion& promotion, Output<Traits>& out,
                              const float* v_descale) {
    out.l[0] = __fmaf_rn(out.l[0], promotion.alpha[0], row_sum<0>(p));
    out.l[1] = __fmaf_rn(out.l[1], promotion.alpha[1], row_sum<1>(p));
    set_unit(promotion, 0, change_unit(out.unit[0], fold_row<0>(p, v_descale)));
    set_unit(promotion, 1, change_unit(out.unit[1], fold_row<1>(p, v_descale)));
  }

  __device__ void wait_for(const KvRing& tile) {
    ptx::mbarrier_wait(&shared_.kv_full[tile.stage()], tile.phase());
  }

  /// One arrival a warp.
  __device__ void release(std::uint64_t* empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty);
  }

  const AttentionArgs& args_;
  Shared<Traits>& shared_;
  const int warp_, warpgroup_;
  CountedRingState<Traits::kQStages> q_;
  KvRing kv_;
};

}  // namespace octavo::sm90
