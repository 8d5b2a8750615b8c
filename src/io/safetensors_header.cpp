// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/row_major.h"
#include "io/sentence.h"

namespace octavo::io {
namespace {

constexpr std::size_t kPrefix = 8;  // the header's length, u64, little-endian
constexpr std::size_t kMaxDims =
    64;  // numpy's limit; bounds the memory a hostile header can ask for

constexpr SafetensorsDType kDTypes[] = {
    {"F32", 32, DType::f32},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"F8_E4M3", 8, DType::f8_e4m3},
    {"F8_E5M2", 8, DType::f8_e5m2},
    {"BOOL", 8, {}},
    {"U8", 8, {}},
    {"I8", 8, DType::i8},
    {"U16", 16, {}},
    {"I16", 16, {}},
    {"U32", 32, {}},
    {"I32", 32, {}},
    {"U64", 64, {}},
    {"I64", 64, {}},
    {"F64", 64, {}},
    {"C64", 64, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

/// A tensor as the JSON gives it, before it is checked against the file.
struct RawTensor {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

/// Receives the JSON token by token. A document tree would lose duplicate keys and let the nesting
/// of a hostile file decide how deep the parser goes; here each level has a name, and there are
/// five.
class HeaderSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderSax(const std::string& file) : file_(file) {}

  std::vector<RawTensor> tensors;
  std::map<std::string, std::string> metadata;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool binary(binary_t&) override { return unexpected("binary"); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + text.substr(0, 40));
  }
  bool number_integer(number_integer_t value) override {
    if (value >= 0) return number_unsigned(static_cast<number_unsigned_t>(value));  // "-0"
    return unexpected("the number " + std::to_string(value));
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ == Level::offsets) {
      if (tensor().offsets->size() == 2) fail(file_, where() + ": data_offsets has over 2 numbers");
      tensor().offsets->push_back(value);
      return true;
    }
    if (level_ != Level::shape || value > std::numeric_limits<std::int64_t>::max()) {
      return unexpected("the number " + std::to_string(value));
    }
    if (tensor().shape->size() == kMaxDims) {
      fail(file_, where() + ": shape has over " + std::to_string(kMaxDims) + " dimensions");
    }
    tensor().shape->push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& text) override {
    if (level_ == Level::metadata) {
      if (!metadata.emplace(key_, text).second) duplicate();
    } else if (level_ == Level::tensor && key_ == "dtype") {
      if (tensor().dtype) duplicate();
      tensor().dtype = text;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ == Level::tensor && key_ == "shape") {
      if (tensor().shape) duplicate();
      tensor().shape.emplace();
      level_ = Level::shape;
    } else if (level_ == Level::tensor && key_ == "data_offsets") {
      if (tensor().offsets) duplicate();
      tensor().offsets.emplace();
      level_ = Level::offsets;
    } else {
      return unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    level_ = Level::tensor;
    return true;
  }

  bool start_object(std::size_t) override {
    if (level_ == Level::file) {
      level_ = Level::header;
    } else if (level_ == Level::header && key_ == kMetadataKey) {
      if (std::exchange(has_metadata_, true)) duplicate();
      level_ = Level::metadata;
    } else if (level_ == Level::header) {
      tensors.push_back({key_, {}, {}, {}});
      level_ = Level::tensor;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& text) override {
    key_ = text;
    if (level_ == Level::tensor && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets") {
      fail(file_, where() + ": has the key " + in_quotes(key_) +
                      "; must have dtype, shape and data_offsets alone");
    }
    return true;
  }

  bool end_object() override {
    level_ = level_ == Level::header ? Level::file : Level::header;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail(file_, "the header is not valid JSON at its byte " + std::to_string(position));
  }

 private:
  enum class Level { file, header, metadata, tensor, shape, offsets };

  RawTensor& tensor() { return tensors.back(); }

  std::string where() const {
    if (level_ == Level::file) return "the header";
    if (level_ == Level::header) return "header entry " + in_quotes(key_);
    if (level_ == Level::metadata) return "__metadata__ entry " + in_quotes(key_);
    return "tensor " + in_quotes(tensors.back().name);
  }

  bool unexpected(const std::string& what) const {
    std::string reason = where();
    if (level_ == Level::file || level_ == Level::header) {
      reason += " is " + what + "; must be an object";
    } else if (level_ == Level::metadata) {
      reason += " is " + what + "; must be a string";
    } else if (level_ == Level::tensor) {
      reason += ": " + key_ + " is " + what + "; must be " +
                (key_ == "dtype" ? "a string" : "a list of integers");
    } else {
      reason += ": " + key_ + " holds " + what + "; must hold integers of 0 to 2^63 - 1";
    }
    fail(file_, reason);
  }

  void duplicate() const {
    const bool in_tensor = level_ == Level::tensor;
    fail(file_, where() + (in_tensor ? ": " + key_ + " appears twice" : " appears twice"));
  }

  const std::string& file_;
  Level level_ = Level::file;
  std::string key_;
  bool has_metadata_ = false;
};

std::string_view header_text(const std::string& file, std::span<const std::byte> bytes) {
  if (bytes.size() < kPrefix) {
    fail(file, "is " + std::to_string(bytes.size()) +
                   " bytes long; a safetensors file begins with a header length of 8 bytes");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kPrefix; ++i) {
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  const std::string said = "says that its header has " + std::to_string(length) + " bytes; ";
  if (length > kMaxSafetensorsHeader) {
    fail(file, said + "at most " + std::to_string(kMaxSafetensorsHeader) + " are accepted");
  }
  if (length > bytes.size() - kPrefix) {
    fail(file, said + "only " + std::to_string(bytes.size() - kPrefix) + " follow");
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kPrefix,
                              static_cast<std::size_t>(length));
  if (text.empty() || text[0] != '{') fail(file, "the header does not begin with '{'");
  // The JSON library takes a NUL for the end of its input and would not look at what follows.
  if (const auto at = text.find('\0'); at != std::string_view::npos) {
    fail(file, "the header is not valid JSON at its byte " + std::to_string(at + 1));
  }
  return text;
}

/// Bytes that a tensor of this type and shape takes.
std::uint64_t expected_size(const std::string& file, const RawTensor& raw) {
  const std::string where = "tensor " + in_quotes(raw.name);
  const SafetensorsDType* dtype = find_safetensors_dtype(*raw.dtype);
  if (dtype == nullptr) {
    fail(file,
         where + " has dtype " + in_quotes(*raw.dtype) + ", which safetensors does not define");
  }
  const auto count = element_count(*raw.shape);
  if (!count) {
    fail(file, where + " has shape " + shape_text(*raw.shape) + "; must have at most " +
                   std::to_string(kMaxElements) + " elements");
  }
  const std::int64_t bits = *count * dtype->bits;
  if (bits % 8 != 0) {
    fail(file, where + " has " + std::to_string(bits) + " bits; must be whole bytes");
  }
  return static_cast<std::uint64_t>(bits / 8);
}

SafetensorsEntry checked_entry(const std::string& file, RawTensor& raw,
                               std::span<const std::byte> data) {
  const std::string where = "tensor " + in_quotes(raw.name);
  if (!raw.dtype) fail(file, where + " has no dtype");
  if (!raw.shape) fail(file, where + " has no shape");
  if (!raw.offsets) fail(file, where + " has no data_offsets");
  if (raw.offsets->size() != 2) fail(file, where + ": data_offsets must have 2 numbers");

  const std::uint64_t begin = (*raw.offsets)[0];
  const std::uint64_t end = (*raw.offsets)[1];
  const std::string range =
      ": data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "] ";
  if (begin > end) fail(file, where + range + "end before they begin");
  if (end > data.size()) {
    fail(file, where + range + "end after the " + std::to_string(data.size()) +
                   " bytes of data in the file");
  }
  const std::uint64_t expected = expected_size(file, raw);
  if (end - begin != expected) {
    fail(file, where + range + "span " + std::to_string(end - begin) + " bytes; " + *raw.dtype +
                   " of shape " + shape_text(*raw.shape) + " takes " + std::to_string(expected));
  }
  return {std::move(raw.name), std::move(*raw.dtype), std::move(*raw.shape), data.data() + begin,
          static_cast<std::size_t>(expected)};
}

/// Walks the tensors in file order: each must begin where the one before it ended.
void check_coverage(const std::string& file, std::vector<SafetensorsEntry>& entries,
                    std::span<const std::byte> data) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data, a.size) < std::pair(b.data, b.size);
  });
  const std::byte* end = data.data();
  const std::string* previous = nullptr;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.data < end) {
      fail(file, "tensors " + in_quotes(*previous) + " and " + in_quotes(entry.name) +
                     " overlap at data offset " + std::to_string(entry.data - data.data()));
    }
    if (entry.data > end) {
      fail(file, "data bytes " + std::to_string(end - data.data()) + " to " +
                     std::to_string(entry.data - data.data()) + ", before tensor " +
                     in_quotes(entry.name) + ", belong to no tensor");
    }
    end = entry.data + entry.size;
    previous = &entry.name;
  }
  const auto covered = static_cast<std::size_t>(end - data.data());
  if (covered != data.size()) {
    fail(file, "has " + std::to_string(data.size()) + " bytes of data; its tensors cover " +
                   std::to_string(covered));
  }
}

}  // namespace

const SafetensorsDType* find_safetensors_dtype(std::string_view name) {
  const auto* found = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [&](const auto& row) { return row.name == name; });
  return found == std::end(kDTypes) ? nullptr : found;
}

std::string_view safetensors_dtype_name(DType dtype) {
  return std::find_if(std::begin(kDTypes), std::end(kDTypes),
                      [&](const auto& row) { return row.dtype == dtype; })
      ->name;
}

SafetensorsHeader parse_safetensors(const std::string& file, std::span<const std::byte> bytes) {
  const std::string_view text = header_text(file, bytes);
  HeaderSax sax(file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &sax);

  const auto data = bytes.subspan(kPrefix + text.size());
  SafetensorsHeader header;
  header.metadata = std::move(sax.metadata);
  header.entries.reserve(sax.tensors.size());
  for (RawTensor& raw : sax.tensors) header.entries.push_back(checked_entry(file, raw, data));

  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  auto& entries = header.entries;
  std::sort(entries.begin(), entries.end(), by_name);
  const auto twin =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twin != entries.end()) fail(file, "tensor " + in_quotes(twin->name) + " appears twice");
  check_coverage(file, entries, data);
  std::sort(entries.begin(), entries.end(), by_name);
  return header;
}

}  // namespace octavo::io
