// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>

#include "io/mapped_file.h"
#include "octavo/tensor.h"

namespace octavo::io {

/// An array read from a .npy file. The view lives as long as this object (or the one it is moved
/// to) and must not be written to.
struct NpyArray {
  TensorView view;
  MappedFile file;
  std::unique_ptr<std::byte[]> aligned;  ///< a copy, when the file holds the data unaligned
};

/// Reads a C-ordered, little-endian array of rank up to kMaxRank: '<f4' as f32, '<f2' as f16,
/// '|i1' as i8.
///
/// numpy has no names for the other types, so `as` says what raw codes mean: bf16 for '<u2', '<V2'
/// and '|V2'; f8_e4m3 or f8_e5m2 for '|u1', '|V1', '<V1', '<f1' and '|f1' (numpy.save writes the
/// types of ml_dtypes as V2, V1 and f1). For '<f4', '<f2' and '|i1', `as` must agree or be left
/// out.
///
/// Throws Error{io} with "FILE: reason" for a damaged file and for one that holds something else.
NpyArray read_npy(const std::filesystem::path& path, std::optional<DType> as = {});

/// Writes version 1.0, row-major, all or nothing (AtomicFile). f32 is written as '<f4', f16 as
/// '<f2', bf16 as '<u2', i8 as '|i1' and FP8 as '|u1': the codes, to be read back with `as` or by
/// numpy.load(...).view(ml_dtypes.bfloat16). Throws Error{invalid_argument} for a view that
/// has no data, lies in GPU memory or has an impossible shape, else Error{io}.
void write_npy(const std::filesystem::path& path, const TensorView& view);

}  // namespace octavo::io
