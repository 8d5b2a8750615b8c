// SPDX-License-Identifier: Apache-2.0
// Targets without fused multiply-add or with vectors of unknown length are left out; what remains
// besides the named ones is the portable baseline, slow and bit-equal.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include "emulate/simd/stages.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "emulate/simd/stages.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes the rest once for each target.
#include "emulate/simd/cast-inl.h"
#include "emulate/simd/common-inl.h"
#include "emulate/simd/mma-inl.h"
#include "emulate/simd/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::emulate::simd {
namespace HWY_NAMESPACE {

const Stages* table() {
  static const Stages stages = {decode,   mma_fp32, mma_hopper,   softcap, scale_columns, row_max,
                                exp2_sum, cast_p,   direct_codes, rescale, promote};
  return &stages;
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::emulate::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::emulate::simd {

HWY_EXPORT(table);

namespace {

const Stages* choose() { return HWY_DYNAMIC_DISPATCH(table)(); }

const Stages*& current() {
  static const Stages* stages = choose();
  return stages;
}

}  // namespace

const Stages& stages() { return *current(); }

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

bool force_target(const std::string& name) {
  bool found = name.empty();
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    if (name != hwy::TargetName(target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    found = true;
    break;
  }
  if (found) {
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    current() = choose();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return found;
}

}  // namespace octavo::emulate::simd
#endif
