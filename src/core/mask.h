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

template <typename Index>
struct BasicKeyRange {
  Index begin = 0;
  Index end = 0;
  constexpr bool empty() const { return begin >= end; }
};
using KeyRange = BasicKeyRange<std::int64_t>;

/// Every row sees every key.
struct NoMask {
  using Index = std::int64_t;
  std::int64_t sq, sk;
  constexpr KeyRange row(std::int64_t) const { return {0, sk}; }
};

/// Row i sees keys up to its own position.
struct CausalMask {
  using Index = std::int64_t;
  std::int64_t sq, sk;
  constexpr KeyRange row(std::int64_t i) const {
    return {0, std::clamp<std::int64_t>(i + sk - sq + 1, 0, sk)};
  }
};

/// Row i sees keys from its position - left to its position + right; either side may be unlimited.
/// Kernels, whose sq and sk are below 2^30, take it with 32-bit indices.
template <typename IndexType>
struct BasicWindowMask {
  using Index = IndexType;
  Index sq, sk;
  Index left, right;
  constexpr BasicKeyRange<Index> row(Index i) const {
    const Index position = i + sk - sq;
    // Subtract from the limits, not from the position: left and right may be as large as Index.
    const Index begin = (left < 0 || left >= position) ? 0 : std::min<Index>(position - left, sk);
    const Index end = (right < 0 || right >= sk - 1 - position)
                          ? sk
                          : std::clamp<Index>(position + right + 1, 0, sk);
    return {begin, std::max(end, begin)};
  }
};
using WindowMask = BasicWindowMask<std::int64_t>;

using Mask = std::variant<NoMask, CausalMask, WindowMask>;

/// The mask type that a specification asks for, for one batch entry with `sk` valid keys.
inline Mask make_mask(const MaskSpec& spec, std::int64_t sq, std::int64_t sk) {
  if (spec.left < 0 && spec.right < 0) return NoMask{sq, sk};
  if (spec.left < 0 && spec.right == 0) return CausalMask{sq, sk};
  return WindowMask{sq, sk, spec.left, spec.right};
}

template <typename MaskType>
using IndexOf = typename MaskType::Index;

/// Keys that any of the rows [m, m + rows) sees. Both ends grow with the row in every mask above.
template <typename MaskType>
constexpr BasicKeyRange<IndexOf<MaskType>> rows_range(const MaskType& mask, IndexOf<MaskType> m,
                                                      IndexOf<MaskType> rows) {
  const auto last = std::min<IndexOf<MaskType>>(m + rows, mask.sq) - 1;
  return {mask.row(m).begin, mask.row(last).end};
}

/// Key blocks [first, last) that query rows [m, m + rows) must visit.
template <typename MaskType>
constexpr std::pair<IndexOf<MaskType>, IndexOf<MaskType>> block_range(const MaskType& mask,
                                                                      IndexOf<MaskType> m,
                                                                      IndexOf<MaskType> rows,
                                                                      IndexOf<MaskType> block_n) {
  const auto keys = rows_range(mask, m, rows);
  if (keys.empty()) return {0, 0};
  return {keys.begin / block_n, (keys.end + block_n - 1) / block_n};
}

/// Key blocks [first, last) of which all of the rows [m, m + rows) see every key: no element needs
/// a test.
template <typename MaskType>
constexpr std::pair<IndexOf<MaskType>, IndexOf<MaskType>> full_block_range(
    const MaskType& mask, IndexOf<MaskType> m, IndexOf<MaskType> rows, IndexOf<MaskType> block_n) {
  const auto last = std::min<IndexOf<MaskType>>(m + rows, mask.sq) - 1;
  return {(mask.row(last).begin + block_n - 1) / block_n, mask.row(m).end / block_n};
}

}  // namespace octavo
