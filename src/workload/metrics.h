// SPDX-License-Identifier: Apache-2.0
// How far one output is from another.
#pragma once

#include <cstdint>

#include "octavo/tensor.h"

namespace octavo::workload {

/// Figures over the elements that are finite in both tensors, summed in double; plus counts of
/// those that are not. "want" is the reference.
struct Metrics {
  std::int64_t count = 0;  ///< elements in all
  double relative_l2 = 0;  ///< |got - want| / |want|; 0 where both are zero, inf where only want is
  double rmse = 0;         ///< sqrt(mean((got - want)^2))
  double max_abs = 0;      ///< max |got - want|
  double cosine = 1;       ///< got . want / (|got| |want|); 1 where both are zero, 0 where one is
  double snr_db = 0;       ///< 20 log10(|want| / |got - want|); inf where they are equal
  double worst_row_cosine = 1;  ///< least cosine over rows (the last dimension)
  double zeros = 0;             ///< share of exact zeros in got
  double zeros_want = 0;        ///< the same in want
  std::int64_t nan = 0, nan_want = 0;
  std::int64_t inf = 0, inf_want = 0;
  bool masks_agree = true;  ///< NaNs at the same places, infinities too and with the same signs
};

/// Both of any float type and any strides, of the same shape. Throws Error{invalid_argument} where
/// the shapes differ.
Metrics compare(const TensorView& got, const TensorView& want);

/// Whether both hold the same bits. Same shape and dtype, or the answer is no.
bool bit_equal(const TensorView& got, const TensorView& want);

}  // namespace octavo::workload
