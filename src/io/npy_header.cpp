// SPDX-License-Identifier: Apache-2.0
#include "io/npy_header.h"

#include <limits>
#include <string_view>

#include "io/sentence.h"

namespace octavo::io {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kMaxDims = 64;  // numpy's own limit
// A plain array's header has about 100 bytes; only structured types, which are refused, need more
// than the 64 KiB of version 1.0.
constexpr std::size_t kMaxHeader = std::size_t{1} << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Reads the one Python literal that numpy writes: a dictionary of a string, a boolean and a tuple
/// of integers. No recursion: nothing nests deeper than the tuple.
class DictParser {
 public:
  DictParser(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  NpyHeader parse() {
    expect('{', "the dictionary's '{'");
    while (!take('}')) {
      item();
      if (!take(',')) {
        expect('}', "',' or '}'");
        break;
      }
    }
    if (peek() != '\0' || at_ < text_.size()) bad("nothing after the dictionary");
    require(has_descr_, "descr");
    require(has_order_, "fortran_order");
    require(has_shape_, "shape");
    return header_;
  }

 private:
  void item() {
    const std::string key = string("a key in quotes");
    expect(':', "':'");
    if (key == "descr") {
      once(has_descr_, key);
      if (peek() == '[' || peek() == '(') {
        fail(file_, "descr is a structured type; must be a plain one such as '<f4'");
      }
      header_.descr = string("a type in quotes");
    } else if (key == "fortran_order") {
      once(has_order_, key);
      header_.fortran_order = boolean();
    } else if (key == "shape") {
      once(has_shape_, key);
      tuple();
    } else {
      fail(file_, "the header has the key " + in_quotes(key) +
                      "; must have descr, fortran_order and shape alone");
    }
  }

  void once(bool& seen, const std::string& key) const {
    if (seen) fail(file_, "the header has the key " + in_quotes(key) + " twice");
    seen = true;
  }

  void require(bool seen, const char* key) const {
    if (!seen) fail(file_, "the header has no key " + in_quotes(key));
  }

  std::string string(const char* expected) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') bad(expected);
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) {
      const char c = text_[at_];
      if (c < ' ' || c > '~' || c == '\\') bad("a plain ASCII character");  // no escapes needed
      ++at_;
    }
    if (at_ == text_.size()) bad("the closing quote");
    return std::string(text_.substr(begin, at_++ - begin));
  }

  bool boolean() {
    for (const std::string_view word : {"True", "False"}) {
      if (peek() == word[0] && text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return word == "True";
      }
    }
    bad("True or False");
  }

  void tuple() {
    expect('(', "the shape's '('");
    bool comma = true;
    while (!take(')')) {
      if (!comma) bad("',' or ')'");
      if (header_.shape.size() == kMaxDims) {
        fail(file_, "shape has over " + std::to_string(kMaxDims) + " dimensions");
      }
      header_.shape.push_back(integer());
      comma = take(',');
    }
    if (header_.shape.size() == 1 && !comma) bad("',' (Python reads (3) as a number)");
  }

  std::int64_t integer() {
    if (peek() == '-') fail(file_, "shape has a negative dimension");
    if (!is_digit(peek())) bad("a whole number");
    std::int64_t value = 0;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
      const int digit = text_[at_] - '0';
      if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10) {
        fail(file_, "shape has a dimension over 2^63 - 1");
      }
      value = value * 10 + digit;
    }
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote 3L
    return value;
  }

  /// The next character that is not white space; NUL at the end.
  char peek() {
    while (at_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[at_]) != text_.npos)
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  void expect(char c, const char* expected) {
    if (!take(c)) bad(expected);
  }

  [[noreturn]] void bad(const char* expected) const {
    fail(file_,
         "the header is damaged at its byte " + std::to_string(at_ + 1) + "; expected " + expected);
  }

  const std::string& file_;
  std::string_view text_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool has_descr_ = false, has_order_ = false, has_shape_ = false;
};

}  // namespace

NpyHeader parse_npy_header(const std::string& file, std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.substr(0, kMagic.size()) != kMagic) {
    fail(file, "is not a .npy file: it does not begin with \\x93NUMPY");
  }
  const auto byte = [&](std::size_t i) {
    if (i >= bytes.size()) {
      fail(file, "ends after " + std::to_string(bytes.size()) + " bytes, within its header");
    }
    return std::to_integer<std::size_t>(bytes[i]);
  };
  const std::size_t major = byte(kMagic.size());
  const std::size_t minor = byte(kMagic.size() + 1);
  if (major < 1 || major > 3 || minor != 0) {
    fail(file, "has .npy version " + std::to_string(major) + "." + std::to_string(minor) +
                   "; must be 1.0, 2.0 or 3.0");
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t begin = kMagic.size() + 2 + length_bytes;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    length |= byte(begin - length_bytes + i) << (8 * i);
  }
  const std::string said = "says that its header has " + std::to_string(length) + " bytes; ";
  if (length > kMaxHeader) {
    fail(file, said + "at most " + std::to_string(kMaxHeader) + " are accepted");
  }
  if (length > bytes.size() - begin) {
    fail(file, said + "only " + std::to_string(bytes.size() - begin) + " follow");
  }
  NpyHeader header = DictParser(file, text.substr(begin, length)).parse();
  header.data_offset = begin + length;
  return header;
}

}  // namespace octavo::io
