// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace octavo::cli {
namespace {

std::string print_number(const char* format, int digits, double x) {
  char buffer[400];  // %.*f of the largest double needs 310
  std::snprintf(buffer, sizeof buffer, format, digits, x);
  return buffer;
}

}  // namespace

Table::Table(std::vector<std::string> header, std::string alignment)
    : alignment_(std::move(alignment)) {
  rows_.push_back(std::move(header));
  add_rule();
}

void Table::add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

void Table::add_rule() { rows_.emplace_back(); }

std::string Table::line(const std::vector<std::string>& cells,
                        const std::vector<std::size_t>& widths) const {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - cells[i].size(), ' ');
    const bool right = alignment_[i] == 'r';
    text += (i > 0 ? "  " : "") + (right ? padding + cells[i] : cells[i] + padding);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

void Table::print(std::ostream& out, const std::string& indent) const {
  std::vector<std::size_t> widths(alignment_.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::size_t total = 2 * (widths.size() - 1);
  for (const std::size_t width : widths) total += width;
  for (const auto& row : rows_) {
    out << indent << (row.empty() ? std::string(total, '-') : line(row, widths)) << '\n';
  }
}

std::string fixed(double x, int digits) { return print_number("%.*f", digits, x); }
std::string significant(double x, int digits) { return print_number("%.*g", digits, x); }
std::string percent(double share, int digits) { return fixed(100 * share, digits) + " %"; }

}  // namespace octavo::cli
