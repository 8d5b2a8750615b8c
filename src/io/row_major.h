// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "io/atomic_file.h"
#include "octavo/tensor.h"

namespace octavo::io {

/// More elements than this are refused everywhere: then elements, bytes and bits (up to 64 an
/// element) all fit an int64, and no later arithmetic on a shape can overflow.
inline constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 64;

/// Product of `shape` (no negative dims), or nothing when it passes kMaxElements. A dim of 0 does
/// not excuse the others: strides multiply them without it.
std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape);

/// A row-major view of rank shape.size() <= kMaxRank. The bytes must not be written to.
TensorView row_major_view(const std::byte* data, DType dtype, std::span<const std::int64_t> shape);

/// `bytes` themselves where they are aligned for `dtype`, else a copy put into `copy`. File formats
/// promise no alignment, and reading a float at an odd address is undefined behaviour.
const std::byte* aligned_bytes(std::span<const std::byte> bytes, DType dtype,
                               std::unique_ptr<std::byte[]>& copy);

/// Refuses, with Error{invalid_argument} and the sentence "WHAT is ...; must be ...", a view that
/// cannot be written: not in CPU memory, without data, a rank or dimension out of range.
void check_writable(const std::string& what, const TensorView& view);

/// Bytes of a view that passed check_writable, once packed.
std::int64_t packed_size(const TensorView& view);

/// Appends the elements of a view that passed check_writable, packed, last dimension fastest.
void write_row_major(AtomicFile& file, const TensorView& view);

}  // namespace octavo::io
