// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 query rows through the stages qk .. epilogue, key tile by key tile from
// the last to the first. An early attention sink then meets P of the other keys already summed,
// instead of pushing them under E4M3's smallest value.
#pragma once

#include "sm90/attention/epilogue.cuh"
#include "sm90/tile/pipeline.cuh"

namespace octavo::sm90 {

template <typename Traits>
class Consumer {
 public:
  __device__ Consumer(const AttentionArgs& args, Shared<Traits>& shared)
      : args_(args),
        shared_(shared),
        warpgroup_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0)) {
  }

  __device__ void run() {
    while (true) {
      ptx::mbarrier_wait(&shared_.q_full[q_.stage], q_.phase());
      const int index = shared_.item[q_.stage];
      if (index == kNoItem) break;
      attend(args_.schedule.at(index));
      q_.advance();
    }
  }

 private:
  __device__ void attend(const WorkItem& item) {
    const WindowMask mask = mask_of(args_, item.batch);
    const int block_m = item.m_block * Traits::kBlockM;
    const int m = block_m + warpgroup_ * kWarpgroupRows;
    const TileRange block = tiles_of(mask, block_m, Traits::kBlockM);
    const TileRange mine = tiles_of(mask, m, kWarpgroupRows);
    const TileRange full = full_tiles_of(mask, m, kWarpgroupRows);
    const Rows rows = load_rows(args_, item, m);

    Output<Traits> out;
    SoftmaxState state;
    for (int n = block.last - 1; n >= block.first; --n) {
      ptx::mbarrier_wait(&shared_.kv_full[kv_.stage], kv_.phase());
      if (mine.holds(n)) step(out, state, rows, item, mask, n * kBlockN, full.holds(n));
      release(&shared_.kv_empty[kv_.stage]);
      kv_.advance();
    }
    release(&shared_.q_empty[q_.stage]);
    epilogue(out, state, rows, item, args_);
  }

  __device__ void step(Output<Traits>& out, SoftmaxState& state, const Rows& rows,
                       const WorkItem& item, const WindowMask& mask, int n, bool full) {
    const int stage = kv_.stage;
    float s[kScores];
    qk<Traits>(s, ptx::operand_word(shared_.q[q_.stage][warpgroup_]),
               ptx::operand_word(shared_.k[stage]));
    float factor[2];
    scale_scores<Traits>(s, factor, rows, item, args_, shared_.k_descale[stage]);
    if (!full) hide(s, rows, mask, n);
    Promotion promotion;
    softmax(s, factor, state, promotion.alpha);
    float sum[2] = {};
    set_units(s, sum, out, promotion, shared_.v_descale[stage]);
    std::uint32_t p[kPWords];
    requantise_p(s, p);
    pv<Traits>(out, p, ptx::operand_word(shared_.v[stage]), promotion);
    if constexpr (Traits::Scores::kGeneral) {
      if (args_.v_per_key) {
        out.l[0] = sum[0];
        out.l[1] = sum[1];
      }
    }
  }

  /// How this tile's product joins O; folds descales of V per key into p.
  __device__ void set_units(float (&p)[kScores], float (&sum)[2], Output<Traits>& out,
                            Promotion& promotion, const float* v_descale) {
    float unit[2] = {v_descale[0], v_descale[0]};
    if constexpr (Traits::Scores::kGeneral) {
      if (args_.v_per_key) {
        // The product's row sums are of folded weights: these are the true ones.
        sum[0] = __fmaf_rn(out.l[0], promotion.alpha[0], row_sum<0>(p));
        sum[1] = __fmaf_rn(out.l[1], promotion.alpha[1], row_sum<1>(p));
        unit[0] = fold_row<0>(p, v_descale);
        unit[1] = fold_row<1>(p, v_descale);
      }
      set_unit(promotion, 0, change_unit(out.unit[0], unit[0]));
      set_unit(promotion, 1, change_unit(out.unit[1], unit[1]));
    } else {  // the same for both rows
      const UnitChange change = change_unit(out.unit[0], unit[0]);
      out.unit[1] = out.unit[0];
      set_unit(promotion, 0, change);
      set_unit(promotion, 1, change);
    }
  }

  /// One arrival a warp.
  __device__ void release(std::uint64_t* empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty);
  }

  const AttentionArgs& args_;
  Shared<Traits>& shared_;
  const int warpgroup_;
  RingState<Traits::kQStages> q_;
  RingState<Traits::kStages> kv_;
};

}  // namespace octavo::sm90
