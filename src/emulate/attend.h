// SPDX-License-Identifier: Apache-2.0
// One query tile against one head of keys: the stages qk .. epilogue in order.
#pragma once

#include "emulate/quantize.h"
#include "emulate/tile.h"

namespace octavo::emulate {

struct Quantisers {
  OperandQuantiser q, k, v;
};

/// Quantises key tile `key_tile` of (kv.b, kv.h) into kv.
void load_key_tile(KvHead& kv, const Quantisers& quantisers, std::int64_t key_tile,
                   AttentionStats& stats);

/// Rows [m, m + kBlockM) of query head h.
void attend(Tile& tile, const AttentionProblem& problem, const Quantisers& quantisers,
            const KvHead& kv, std::int64_t h, std::int64_t m, AttentionStats& stats);

}  // namespace octavo::emulate
