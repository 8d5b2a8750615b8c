// SPDX-License-Identifier: Apache-2.0
#include "io/npy.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>

#include "io/atomic_file.h"
#include "io/npy_header.h"
#include "io/row_major.h"
#include "io/sentence.h"

namespace octavo::io {

static_assert(std::endian::native == std::endian::little,
              ".npy data are little-endian here and are used as they lie in the file");

namespace {

constexpr std::string_view kRaw16[] = {"<u2", "<V2", "|V2"};
constexpr std::string_view kRaw8[] = {"|u1", "|V1", "<V1", "<f1", "|f1"};

template <std::size_t n>
bool contains(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// The type of a descr that names one, checked against what the caller asked for.
DType agreed(const std::string& file, const std::string& descr, DType dtype,
             std::optional<DType> as) {
  if (as.value_or(dtype) != dtype) {
    fail(file, "holds " + in_quotes(descr) + ", which is " + dtype_name(dtype) +
                   "; cannot be read as " + dtype_name(*as));
  }
  return dtype;
}

DType resolve_dtype(const std::string& file, const std::string& descr, std::optional<DType> as) {
  if (descr == "<f4") return agreed(file, descr, DType::f32, as);
  if (descr == "<f2") return agreed(file, descr, DType::f16, as);
  if (descr == "|i1") return agreed(file, descr, DType::i8, as);
  const bool raw16 = contains(kRaw16, descr);
  if (raw16 || contains(kRaw8, descr)) {
    const std::string rule = raw16 ? "bf16" : "f8_e4m3 or f8_e5m2";
    const std::string holds =
        "holds " + in_quotes(descr) + ", raw codes of " + (raw16 ? "16" : "8") + " bits; ";
    if (!as) fail(file, holds + "the type they stand for must be given: " + rule);
    if (raw16 ? *as != DType::bf16 : !is_fp8(*as)) {
      fail(file, holds + "cannot be read as " + dtype_name(*as) + ", only as " + rule);
    }
    return *as;
  }
  const std::string holds = "holds " + in_quotes(descr);
  if (descr.starts_with('>')) fail(file, holds + ", big-endian; must be little-endian");
  // Rounding is the caller's decision: a reader that did it would hide it.
  if (descr == "<f8") fail(file, holds + ", float64; must be converted to float32 first");
  fail(file, holds + "; must be '<f4', '<f2', '|i1', or raw codes such as '<u2' or '|u1'");
}

const char* written_descr(DType dtype) {
  switch (dtype) {
    case DType::f32: return "<f4";
    case DType::f16: return "<f2";
    case DType::bf16: return "<u2";
    case DType::f8_e4m3:
    case DType::f8_e5m2: return "|u1";
    case DType::i8: return "|i1";
  }
  return "";
}

/// Magic, version 1.0, length and dictionary, padded as numpy does: the data begin at a multiple of
/// 64 bytes.
std::string header_bytes(const TensorView& view) {
  constexpr std::size_t kAlignment = 64;
  std::string dict = std::string("{'descr': '") + written_descr(view.dtype) +
                     "', 'fortran_order': False, 'shape': (";
  for (int i = 0; i < view.rank; ++i) dict += std::to_string(view.shape[i]) + ", ";
  if (view.rank > 0) dict.pop_back();  // the space
  if (view.rank > 1) dict.pop_back();  // the comma, which (3,) keeps
  dict += "), }";
  const std::size_t fixed = 10;  // magic 6, version 2, length 2
  const std::size_t total = (fixed + dict.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  dict.resize(total - fixed - 1, ' ');
  dict += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(dict.size() & 0xFF);
  bytes += static_cast<char>(dict.size() >> 8);
  return bytes + dict;
}

}  // namespace

NpyArray read_npy(const std::filesystem::path& path, std::optional<DType> as) {
  NpyArray array;
  array.file = MappedFile::open(path);
  const std::string& file = array.file.name();
  const NpyHeader header = parse_npy_header(file, array.file.bytes());

  const DType dtype = resolve_dtype(file, header.descr, as);
  if (header.fortran_order) {
    fail(file, "is in Fortran order; must be in C order (numpy.ascontiguousarray)");
  }
  if (header.shape.size() > kMaxRank) {
    fail(file, "has shape " + shape_text(header.shape) + "; must have at most " +
                   std::to_string(kMaxRank) + " dimensions");
  }
  const auto count = element_count(header.shape);
  if (!count) {
    fail(file, "has shape " + shape_text(header.shape) + "; must have at most " +
                   std::to_string(kMaxElements) + " elements");
  }
  const auto data = array.file.bytes().subspan(header.data_offset);
  const std::size_t expected = static_cast<std::size_t>(*count) * size_of(dtype);
  if (data.size() != expected) {
    fail(file, "has " + std::to_string(data.size()) + " bytes of data; " + in_quotes(header.descr) +
                   " of shape " + shape_text(header.shape) + " takes " + std::to_string(expected));
  }
  array.view = row_major_view(aligned_bytes(data, dtype, array.aligned), dtype, header.shape);
  return array;
}

void write_npy(const std::filesystem::path& path, const TensorView& view) {
  check_writable("write_npy: view", view);
  const std::string header = header_bytes(view);
  AtomicFile file(path);
  file.write(header.data(), header.size());
  write_row_major(file, view);
  file.commit();
}

}  // namespace octavo::io
