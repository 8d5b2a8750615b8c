// SPDX-License-Identifier: Apache-2.0
// Tables and numbers for people.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace octavo::cli {

/// Columns as wide as their widest cell, two spaces apart; cells in ASCII.
class Table {
 public:
  /// `alignment` has one letter a column: l or r.
  Table(std::vector<std::string> header, std::string alignment);
  void add(std::vector<std::string> cells);
  void add_rule();  ///< a line between groups of rows
  void print(std::ostream& out, const std::string& indent = "") const;

 private:
  std::string line(const std::vector<std::string>& cells,
                   const std::vector<std::size_t>& widths) const;

  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;  // the first is the header; an empty one is a rule
};

std::string fixed(double x, int digits);        ///< "3.14"; "inf", "nan"
std::string significant(double x, int digits);  ///< "1.23e-05"
std::string percent(double share, int digits);  ///< "5.21 %"

}  // namespace octavo::cli
