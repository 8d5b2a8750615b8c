// SPDX-License-Identifier: Apache-2.0
#include "io/sentence.h"

#include <system_error>

#include "octavo/error.h"

namespace octavo::io {
namespace {

// Long enough for the tensor names of real models, short enough for a terminal line or two.
constexpr std::size_t kMaxQuoted = 160;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; }

void append_escaped(std::string& out, std::string_view text, bool escape_high) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || (escape_high && byte >= 0x80)) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
}

/// Length of the UTF-8 sequence that `lead` starts and its smallest code point; 0 for a byte that
/// starts none.
struct Sequence {
  std::size_t length;
  std::uint32_t smallest;
};

Sequence sequence_of(unsigned char lead) {
  if (lead < 0x80) return {1, 0};
  if ((lead & 0xE0u) == 0xC0u) return {2, 0x80};
  if ((lead & 0xF0u) == 0xE0u) return {3, 0x800};
  if ((lead & 0xF8u) == 0xF0u) return {4, 0x10000};
  return {0, 0};
}

}  // namespace

void fail(const std::string& file, const std::string& reason) {
  throw Error(ErrorCode::io, file + ": " + reason);
}

void fail_errno(const std::string& file, const std::string& action, int number) {
  fail(file, action + ": " + std::generic_category().message(number));
}

std::string in_quotes(std::string_view text) {
  const bool escape_high = !is_utf8(text);
  std::string out = "'";
  if (text.size() <= kMaxQuoted) {
    append_escaped(out, text, escape_high);
  } else {
    std::size_t head = kMaxQuoted / 2;
    std::size_t tail = text.size() - kMaxQuoted / 2;
    if (!escape_high) {  // never cut a character in two
      while (is_continuation(text[head])) --head;
      while (tail < text.size() && is_continuation(text[tail])) ++tail;
    }
    append_escaped(out, text.substr(0, head), escape_high);
    out += "...";
    append_escaped(out, text.substr(tail), escape_high);
  }
  return out + "'";
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const auto [length, smallest] = sequence_of(lead);
    if (length == 0 || length > text.size() - i) return false;
    std::uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
    for (std::size_t j = 1; j < length; ++j) {
      if (!is_continuation(text[i + j])) return false;
      code = code << 6 | (static_cast<unsigned char>(text[i + j]) & 0x3Fu);
    }
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    if (code < smallest || code > 0x10FFFF || surrogate) return false;
    i += length;
  }
  return true;
}

}  // namespace octavo::io
