// SPDX-License-Identifier: Apache-2.0
// Contents of the operands, from a seed: the same bits on every platform, in every layout.
//
//   normal   N(0, 1)
//   outlier  N(0, 1) + N(0, 100) Bernoulli(0.001), 100 the variance: Shah et al. 2024
//            (FlashAttention-3), section 4.3
//   channel  K = N(0, 1) + one offset a (head, channel), +-10 to +-50, the same for all tokens;
//            Q and V normal. Adds one number to all scores of a row: softmax must not notice.
//   sink     key 0 is 300 times a random unit vector, its value row 1e-3 N(0, 1); the rest normal
//   wide     row magnitudes over 40 octaves (20 where an operand or the output is f16, for its
//            range): V rows 2^-20 to 2^20; Q rows times 2^(m - r), K rows times 2^(-m - r'), with
//            m in [-10, 10] per KV head and r, r' in [0, 10] per row. m cancels in every score and
//            r only shrinks it, so softmax stays as well conditioned as on normal data.
//   uniform  U(-1, 1)
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "octavo/attention.h"
#include "workload/problem.h"
#include "workload/tensor.h"

namespace octavo::workload {

/// The operands of one problem and the memory behind them. Movable: views point to the heap.
struct Inputs {
  TensorView q, k, v;
  TensorView q_descale, k_descale, v_descale, score_shift;  ///< in=f8 only

  std::vector<Tensor> storage;
  std::unique_ptr<QuantizedQkv> quantized;
};

/// Q, K and V of a problem, in its dtype and layout. in=f8 generates BF16 and quantises it by the
/// problem's recipe. `progress` is called now and then with the share done. Throws
/// Error{invalid_argument}.
Inputs generate(const Problem& problem, const std::function<void(double)>& progress = {});

/// The call that a problem asks for on these inputs, all but out and lse.
AttentionParams attention_params(const Problem& problem, const Inputs& inputs);

}  // namespace octavo::workload
