// SPDX-License-Identifier: Apache-2.0
#include "workload/problem_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/split.h"
#include "octavo/error.h"

namespace octavo::workload {
namespace {

[[noreturn]] void refuse(std::string_view argument, std::string_view text,
                         const std::string& rule) {
  throw Error(ErrorCode::invalid_argument,
              std::string(argument) + " is " + quoted(text) + "; must be " + rule);
}

template <typename T>
bool read_all(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

template <typename T>
T read_positive(std::string_view argument, std::string_view text) {
  T value = 0;
  const bool read = read_all(text, value);
  const auto single = static_cast<float>(value);
  if (!read || !std::isfinite(single) || single <= 0) {
    refuse(argument, text, "a positive finite number");
  }
  return value;
}

template <typename T>
std::string shortest_text(T value) {
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return error == std::errc{} ? std::string(buffer.data(), end) : std::to_string(value);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

constexpr std::int64_t kMaxKeys = std::int64_t{1} << 40;  // longer than any memory holds

std::int64_t window_side(std::string_view argument, std::string_view text, std::string_view side) {
  if (side == "all") return MaskSpec::kUnlimited;
  std::int64_t value = 0;
  if (!read_all(side, value) || value < 0 || value > kMaxKeys) {
    refuse(argument, text, "L,R: whole numbers from 0 (or \"all\") of keys back and ahead");
  }
  return value;
}

}  // namespace

std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string clean = "'";
  for (const char c : text.substr(0, kLongest)) clean += (c >= 0x20 && c < 0x7f) ? c : '?';
  if (text.size() > kLongest) clean += "...";
  return clean + "'";
}

std::int64_t parse_whole(std::string_view argument, std::string_view text, std::int64_t low,
                         std::int64_t high) {
  std::int64_t value = 0;
  if (!read_all(text, value) || value < low || value > high) {
    refuse(argument, text,
           "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

std::uint64_t parse_seed(std::string_view argument, std::string_view text) {
  std::uint64_t value = 0;
  if (!read_all(text, value)) refuse(argument, text, "a whole number from 0 to 2^64 - 1");
  return value;
}

double parse_positive(std::string_view argument, std::string_view text) {
  return read_positive<double>(argument, text);
}

float parse_positive_float(std::string_view argument, std::string_view text) {
  return read_positive<float>(argument, text);
}

MaskSpec parse_window(std::string_view argument, std::string_view text) {
  const auto sides = split(text, ',');
  if (sides.size() != 2) {
    refuse(argument, text, "L,R: whole numbers from 0 (or \"all\") of keys back and ahead");
  }
  return MaskSpec::window(window_side(argument, text, sides[0]),
                          window_side(argument, text, sides[1]));
}

std::vector<std::int64_t> parse_lengths(std::string_view argument, std::string_view text) {
  std::vector<std::int64_t> lengths;
  for (const std::string_view part : split(text, ',')) {
    std::int64_t value = 0;
    if (!read_all(part, value) || value < 0 || value > kMaxKeys) {
      refuse(argument, text, "A,B,..: one whole number from 0 for each batch entry");
    }
    lengths.push_back(value);
  }
  return lengths;
}

int parse_promote(std::string_view argument, std::string_view text) {
  if (text == "none") return 0;
  int value = 0;
  if (!read_all(text, value) || value < 1) {
    refuse(argument, text, "a whole number of key tiles from 1, or none");
  }
  return value;
}

int parse_splits(std::string_view argument, std::string_view text) {
  return static_cast<int>(parse_whole(argument, text, 1, kMaxSplits));
}

DType parse_output_dtype(std::string_view argument, std::string_view text) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (text == dtype_name(dtype)) return dtype;
  }
  refuse(argument, text, "one of f32, f16, bf16");
}

DType parse_input_dtype(std::string_view argument, std::string_view text) {
  if (text == "f8") return DType::f8_e4m3;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (text == dtype_name(dtype)) return dtype;
  }
  refuse(argument, text, "one of f32, f16, bf16, f8");
}

Distribution parse_distribution(std::string_view argument, std::string_view text) {
  for (const auto dist : {Distribution::normal, Distribution::outlier, Distribution::channel,
                          Distribution::sink, Distribution::wide, Distribution::uniform}) {
    if (text == distribution_name(dist)) return dist;
  }
  refuse(argument, text, "one of normal, outlier, channel, sink, wide, uniform");
}

Layout parse_layout(std::string_view argument, std::string_view text) {
  for (const auto layout : {Layout::bshd, Layout::bhsd, Layout::packed}) {
    if (text == layout_name(layout)) return layout;
  }
  refuse(argument, text, "one of bshd, bhsd, packed");
}

std::string number_text(double value) { return shortest_text(value); }
std::string number_text(float value) { return shortest_text(value); }

std::string window_text(const MaskSpec& mask) {
  const auto side = [](std::int64_t n) { return n < 0 ? std::string("all") : std::to_string(n); };
  return side(mask.left) + "," + side(mask.right);
}

std::string lengths_text(const std::vector<std::int64_t>& lengths) {
  std::string text;
  for (const std::int64_t n : lengths) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

}  // namespace octavo::workload
