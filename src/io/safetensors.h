// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/mapped_file.h"
#include "io/safetensors_header.h"
#include "octavo/tensor.h"

namespace octavo::io {

/// A .safetensors file, read without copying: 8 bytes of header length, a JSON header, raw
/// little-endian data (https://github.com/huggingface/safetensors#format).
///
/// Stricter than the format's text in one point: a tensor with keys besides dtype, shape and
/// data_offsets is refused, since what they mean is unknown. All errors are Error{io} with the
/// sentence "FILE: reason".
class SafetensorsFile {
 public:
  using Entry = SafetensorsEntry;

  /// Maps the file and checks the whole header; a file that opens has no damaged tensor.
  static SafetensorsFile open(const std::filesystem::path& path);

  /// All tensors sorted by name, also those that tensor() refuses.
  const std::vector<Entry>& entries() const { return header_.entries; }
  /// nullptr: no such tensor.
  const Entry* find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  /// A row-major view, aligned to its element, valid as long as this object (or the one it is moved
  /// to); must not be written to. Data that the file holds unaligned are copied at the first call
  /// for that tensor. Safe to call from several threads. Refuses a name the file does not have (and
  /// lists those it has), a dtype that DType lacks, a rank above kMaxRank.
  TensorView tensor(const std::string& name) const;

 private:
  struct AlignedCopies;

  SafetensorsFile(MappedFile file, SafetensorsHeader header);
  [[noreturn]] void fail_absent(const std::string& name) const;

  MappedFile file_;
  SafetensorsHeader header_;
  std::shared_ptr<AlignedCopies> copies_;
};

/// Collects tensors and writes them as one .safetensors file.
class SafetensorsWriter {
 public:
  /// Any strides; written row-major. The bytes are read in write(), until then they must live.
  /// Throws Error{invalid_argument} naming the tensor: a name already added, "__metadata__" or not
  /// UTF-8, a view that has no data, lies in GPU memory or has an impossible shape.
  void add(const std::string& name, const TensorView& view);

  /// Replaces the string-to-string map in the header. Throws Error{invalid_argument} when a key or
  /// value is not UTF-8.
  void set_metadata(std::map<std::string, std::string> metadata);

  /// Writes all or nothing (AtomicFile). The data begin at a multiple of 8 bytes and are ordered by
  /// falling element size, then name, so that every tensor is aligned. Throws Error{io}.
  void write(const std::filesystem::path& path) const;

 private:
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace octavo::io
