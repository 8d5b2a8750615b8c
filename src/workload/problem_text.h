// SPDX-License-Identifier: Apache-2.0
// Values as text, shared by problem lines and command-line flags: each function says in its error
// which argument was wrong, what it held and what it must be.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/attention.h"
#include "workload/problem.h"

namespace octavo::workload {

/// Text from a user made fit for an error sentence: control bytes and anything past 60 characters
/// are replaced.
std::string quoted(std::string_view text);

/// A decimal whole number within [low, high].
std::int64_t parse_whole(std::string_view argument, std::string_view text, std::int64_t low,
                         std::int64_t high);
std::uint64_t parse_seed(std::string_view argument, std::string_view text);

/// A positive finite number. The library computes with scales in double, with softcap in FP32; both
/// must be positive and finite in FP32.
double parse_positive(std::string_view argument, std::string_view text);
float parse_positive_float(std::string_view argument, std::string_view text);

/// "L,R", either side a whole number or "all".
MaskSpec parse_window(std::string_view argument, std::string_view text);

/// "A,B,..": whole numbers from 0.
std::vector<std::int64_t> parse_lengths(std::string_view argument, std::string_view text);

/// A positive whole number, or "none" (0).
int parse_promote(std::string_view argument, std::string_view text);

/// A whole number from 1 to 64.
int parse_splits(std::string_view argument, std::string_view text);

/// "f32", "f16", "bf16"; of operands also "f8", which stands for f8_e4m3.
DType parse_output_dtype(std::string_view argument, std::string_view text);
DType parse_input_dtype(std::string_view argument, std::string_view text);

Distribution parse_distribution(std::string_view argument, std::string_view text);
Layout parse_layout(std::string_view argument, std::string_view text);

/// The shortest text that parse_positive (parse_positive_float) reads back.
std::string number_text(double value);
std::string number_text(float value);
std::string window_text(const MaskSpec& mask);  ///< "L,R"
std::string lengths_text(const std::vector<std::int64_t>& lengths);

}  // namespace octavo::workload
