// SPDX-License-Identifier: Apache-2.0
#include "compare_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "octavo/version.h"
#include "table.h"

namespace octavo::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLegend =
    R"(rel L2: |out - reference| / |reference|. saturated: finite values of Q, K, V and P cut to FP8's
largest. flushed: non-zero values of Q, K and V that became 0. zeros: exact zeros in the output.
hopper: the 14-bit accumulator of FP8 tensor cores, promoted to FP32 after every key tile;
unpromoted: the same, never promoted, as in other FP8 kernels.
)";

std::int64_t saturated(const AttentionStats& s) {
  return s.q.saturated + s.k.saturated + s.v.saturated + s.p.saturated;
}
std::int64_t flushed_operands(const AttentionStats& s) {
  return s.q.flushed + s.k.flushed + s.v.flushed;
}

std::vector<std::string> cells(const VariantResult& r) {
  if (!r.ran()) {
    std::vector<std::string> row(12, "-");
    row[0] = r.variant.recipe_text();
    row[1] = softmax_name(r.variant.softmax);
    row[2] = r.variant.accumulator_text();
    return row;
  }
  return {r.variant.recipe_text(),
          softmax_name(r.variant.softmax),
          r.variant.accumulator_text(),
          fixed(100 * r.out.relative_l2, 3),
          significant(r.out.rmse, 3),
          significant(r.out.max_abs, 3),
          fixed(r.out.cosine, 6),
          fixed(r.out.snr_db, 1),
          std::to_string(saturated(r.stats)),
          std::to_string(flushed_operands(r.stats)),
          std::to_string(r.stats.p.flushed),
          fixed(100 * r.out.zeros, 2)};
}

// "layer00" for the prefix "layer00."
std::string name_of(const GroupResult& group) {
  return group.prefix.substr(0, group.prefix.find_last_not_of("._/") + 1);
}

std::string title(const GroupResult& group) {
  const std::string name = name_of(group);
  return (name.empty() ? "" : name + ": ") + group.shape + ", " + group.call;
}

// The recipe with the least error, others being equal: of the variants computed like the first.
// A declined one has no error and must not win.
const VariantResult& best(const GroupResult& group) {
  const Variant& first = group.variants.front().variant;
  const auto comparable = [&](const VariantResult& r) {
    return r.ran() && r.variant.softmax == first.softmax &&
           r.variant.accumulator == first.accumulator && r.variant.promote == first.promote;
  };
  const VariantResult* least = &group.variants.front();
  for (const VariantResult& r : group.variants) {
    if (comparable(r) && r.out.relative_l2 < least->out.relative_l2) least = &r;
  }
  return *least;
}

Json counts_json(const CastCounts& counts) {
  return {{"saturated", counts.saturated}, {"flushed", counts.flushed}, {"total", counts.total}};
}

Json variant_json(const VariantResult& r) {
  Json json;
  json["recipe"] = r.variant.recipe_text();
  json["softmax"] = softmax_name(r.variant.softmax);
  json["accumulator"] = accumulator_name(r.variant.accumulator);
  json["promote"] = r.variant.promote;
  if (!r.ran()) {
    json["declined"] = r.declined;
    return json;
  }
  json["engine"] = r.stats.engine;
  json["relative_l2"] = r.out.relative_l2;
  json["rmse"] = r.out.rmse;
  json["max_abs"] = r.out.max_abs;
  json["cosine"] = r.out.cosine;
  json["worst_row_cosine"] = r.out.worst_row_cosine;
  json["snr_db"] = r.out.snr_db;
  json["zeros"] = r.out.zeros;
  json["nan"] = r.out.nan;
  json["inf"] = r.out.inf;
  json["masks_agree"] = r.out.masks_agree && r.lse.masks_agree;
  json["lse_max_abs"] = r.lse.max_abs;
  json["casts"] = {{"q", counts_json(r.stats.q)},
                   {"k", counts_json(r.stats.k)},
                   {"v", counts_json(r.stats.v)},
                   {"p", counts_json(r.stats.p)}};
  json["seconds"] = r.seconds;
  return json;
}

}  // namespace

std::string Variant::recipe_text() const { return recipe ? recipe_name(*recipe) : "as stored"; }

std::string Variant::accumulator_text() const {
  if (accumulator == Accumulator::fp32) return accumulator_name(accumulator);
  if (promote == 1) return "hopper";
  if (promote == 0) return "unpromoted";
  return "hopper every " + std::to_string(promote);
}

std::string Variant::text() const {
  return recipe_text() + ", " + softmax_name(softmax) + ", " + accumulator_text();
}

void print_group(const GroupResult& group, std::ostream& out) {
  out << title(group) << "\n"
      << "  operands " << group.dtype
      << "; error against the double-precision reference, whose rms is "
      << significant(group.reference_rms, 3) << "\n\n";
  Table table({"recipe", "softmax", "accumulator", "rel L2 %", "RMSE", "max", "cosine", "SNR dB",
               "saturated", "flushed", "P flushed", "zeros %"},
              "lllrrrrrrrrr");
  std::size_t i = 0;
  for (const VariantResult& r : group.variants) {
    if (i++ == group.recipes && i > 1) table.add_rule();
    table.add(cells(r));
  }
  table.print(out, "  ");
  for (const VariantResult& r : group.variants) {
    if (!r.ran()) out << "  - " << r.variant.text() << ": " << r.declined << '\n';
  }
  out << '\n';
}

void print_summary(const CompareResult& result, std::ostream& out) {
  out << kLegend << "\n";
  out << "Engine: " << result.engine_note << ".\n";
  for (const GroupResult& group : result.groups) {
    const VariantResult& least = best(group);
    if (!least.variant.recipe) continue;
    out << "Least error" << (group.prefix.empty() ? "" : " in " + name_of(group)) << ": recipe "
        << least.variant.recipe_text() << ", " << percent(least.out.relative_l2, 3) << ".\n";
  }
  const std::string& prefix = result.groups.front().prefix;
  out << "\nTry next:\n"
      << "  octavo compare " << result.file << " --all\n"
      << "  octavo attend " << result.file << (prefix.empty() ? "" : " --prefix " + prefix)
      << " -o out.safetensors --lse\n"
      << "  octavo verify --random 20\n";
}

std::string to_json(const CompareResult& result) {
  Json groups = Json::array();
  for (const GroupResult& group : result.groups) {
    Json variants = Json::array();
    for (const VariantResult& r : group.variants) variants.push_back(variant_json(r));
    groups.push_back({{"prefix", group.prefix},
                      {"shape", group.shape},
                      {"dtype", group.dtype},
                      {"call", group.call},
                      {"reference_seconds", group.reference_seconds},
                      {"reference_rms", group.reference_rms},
                      {"inputs_not_finite", group.inputs_not_finite},
                      {"least_error", best(group).variant.recipe_text()},
                      {"variants", variants}});
  }
  const Json json = {{"octavo", version()},
                     {"file", result.file},
                     {"engine", result.engine},
                     {"engine_note", result.engine_note},
                     {"groups", groups}};
  return json.dump(2) + "\n";
}

}  // namespace octavo::cli
