// SPDX-License-Identifier: Apache-2.0
// Masks as types. Each knows what a row sees and which key blocks a query block must visit, so that
// engines skip hidden blocks and test single elements only in blocks that are partly hidden.
//
// A row sees an interval of keys [begin(row), end(row)); that is all an engine asks. Queries are
// aligned with the last keys: row i stands at key position i + sk - sq. sk is the length of this
// batch entry, so per-batch key lengths need no mask of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "octavo/attention.h"

namespace octavo {

struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  constexpr bool empty() const { return begin >= end; }
};

/// Every row sees every key.
struct NoMask {
  std::int64_t sq, sk;
  constexpr KeyRange row(std::int64_t) const { return {0, sk}; }
};

/// Row i sees keys up to its own position.
struct CausalMask {
  std::int64_t sq, sk;
  constexpr KeyRange row(std::int64_t i) const {
    return {0, std::clamp<std::int64_t>(i + sk - sq + 1, 0, sk)};
  }
};

/// Row i sees keys from its position - left to its position + right; either side may be unlimited.
struct WindowMask {
  std::int64_t sq, sk;
  std::int64_t left, right;
  constexpr KeyRange row(std::int64_t i) const {
    const std::int64_t position = i + sk - sq;
    // Subtract from the limits, not from the position: left and right may be as large as int64.
    const std::int64_t begin = (left < 0 || left >= position) ? 0 : std::min(position - left, sk);
    const std::int64_t end = (right < 0 || right >= sk - 1 - position)
                                 ? sk
                                 : std::clamp<std::int64_t>(position + right + 1, 0, sk);
    return {begin, std::max(end, begin)};
  }
};

using Mask = std::variant<NoMask, CausalMask, WindowMask>;

/// The mask type that a specification asks for, for one batch entry with `sk` valid keys.
inline Mask make_mask(const MaskSpec& spec, std::int64_t sq, std::int64_t sk) {
  if (spec.left < 0 && spec.right < 0) return NoMask{sq, sk};
  if (spec.left < 0 && spec.right == 0) return CausalMask{sq, sk};
  return WindowMask{sq, sk, spec.left, spec.right};
}

/// Keys that any of the rows [m, m + rows) sees. Both ends grow with the row in every mask above.
template <typename MaskType>
constexpr KeyRange rows_range(const MaskType& mask, std::int64_t m, std::int64_t rows) {
  const std::int64_t last = std::min(m + rows, mask.sq) - 1;
  return {mask.row(m).begin, mask.row(last).end};
}

/// Key blocks [first, last) that query rows [m, m + rows) must visit.
template <typename MaskType>
constexpr std::pair<std::int64_t, std::int64_t> block_range(const MaskType& mask, std::int64_t m,
                                                            std::int64_t rows,
                                                            std::int64_t block_n) {
  const KeyRange keys = rows_range(mask, m, rows);
  if (keys.empty()) return {0, 0};
  return {keys.begin / block_n, (keys.end + block_n - 1) / block_n};
}

/// Whether keys [n, n + block_n) are visible to all of the rows [m, m + rows): no element needs a
/// test.
template <typename MaskType>
constexpr bool block_is_full(const MaskType& mask, std::int64_t m, std::int64_t rows,
                             std::int64_t n, std::int64_t block_n) {
  const std::int64_t last = std::min(m + rows, mask.sq) - 1;
  return mask.row(last).begin <= n && n + block_n <= mask.row(m).end;
}

}  // namespace octavo
