// SPDX-License-Identifier: Apache-2.0
// Names of recipes, granularities, softmax paths and accumulators.
#include <algorithm>
#include <utility>

#include "octavo/attention.h"
#include "octavo/error.h"
#include "octavo/quantize.h"

namespace octavo {
namespace {

Recipe uniform_recipe(Granularity granularity) {
  Recipe recipe;
  recipe.q = recipe.k = recipe.v = granularity;
  return recipe;
}

using Named = std::pair<const char*, Recipe (*)()>;
constexpr Named kNamed[] = {
    {"per_tensor", Recipe::per_tensor}, {"per_head", Recipe::per_head},
    {"block", Recipe::block},           {"fp8", Recipe::fp8},
    {"default", Recipe::standard},      {"strict_causal", Recipe::strict_causal}};

[[noreturn]] void refuse(const std::string& argument, const std::string& value,
                         const std::string& rule) {
  throw Error(ErrorCode::invalid_argument, argument + " is '" + value + "'; must be " + rule);
}

}  // namespace

Recipe Recipe::per_tensor() { return uniform_recipe(Granularity::tensor); }
Recipe Recipe::per_head() { return uniform_recipe(Granularity::head); }
Recipe Recipe::block() { return uniform_recipe(Granularity::block); }

Recipe Recipe::fp8() {
  Recipe recipe = block();
  recipe.q = Granularity::token;
  recipe.rotate = true;
  recipe.smooth_k = true;
  return recipe;
}

Recipe Recipe::standard() {
  Recipe recipe = fp8();
  recipe.qk_format = DType::i8;
  return recipe;
}

Recipe Recipe::strict_causal() {
  Recipe recipe = uniform_recipe(Granularity::token);
  recipe.rotate = true;
  return recipe;
}

const char* granularity_name(Granularity granularity) noexcept {
  switch (granularity) {
    case Granularity::tensor: return "tensor";
    case Granularity::head: return "head";
    case Granularity::block: return "block";
    case Granularity::token: return "token";
  }
  return "?";
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kNamed) names.emplace_back(name);
  return names;
}

Recipe parse_recipe(const std::string& name) {
  const std::string base = name.substr(0, name.find('+'));
  for (const auto& [known, make] : kNamed) {
    if (base != known) continue;
    Recipe recipe = make();
    bool int8 = false, e5m2 = false;  // said, not implied
    for (std::size_t at = base.size(); at < name.size();) {
      const std::size_t next = std::min(name.find('+', at + 1), name.size());
      const std::string option = name.substr(at + 1, next - at - 1);
      if (option == "rotate") {
        recipe.rotate = true;
      } else if (option == "smooth") {
        recipe.smooth_k = true;
      } else if (option == "int8") {
        recipe.qk_format = DType::i8;
        int8 = true;
      } else if (option == "e5m2") {
        recipe.kv_format = DType::f8_e5m2;
        recipe.qk_format = DType::f8_e4m3;
        e5m2 = true;
      } else {
        refuse("recipe option", option, "rotate, smooth, int8 or e5m2");
      }
      at = next;
    }
    if (int8 && e5m2) refuse("recipe", name, "one with +int8 or +e5m2, not both");
    return recipe;
  }
  refuse("recipe", base,
         "one of per_tensor, per_head, block, fp8, default, strict_causal, with +rotate, +smooth, "
         "+int8 or +e5m2 behind it where wanted");
}

std::string recipe_name(const Recipe& recipe) {
  // Fewest options first.
  static constexpr const char* kOptions[] = {
      "",      "+rotate",      "+smooth",      "+rotate+smooth",
      "+int8", "+rotate+int8", "+smooth+int8", "+rotate+smooth+int8",
      "+e5m2", "+rotate+e5m2", "+smooth+e5m2", "+rotate+smooth+e5m2"};
  for (const char* options : kOptions) {
    for (const auto& [name, make] : kNamed) {
      Recipe candidate = parse_recipe(std::string(name) + options);
      candidate.seed = recipe.seed;
      if (candidate == recipe) return std::string(name) + options;
    }
  }
  std::string spelled = std::string("q:") + granularity_name(recipe.q) +
                        ",k:" + granularity_name(recipe.k) + ",v:" + granularity_name(recipe.v);
  if (recipe.rotate) spelled += "+rotate";
  if (recipe.smooth_k) spelled += "+smooth";
  if (recipe.qk_format == DType::i8) spelled += "+int8";
  if (recipe.kv_format == DType::f8_e5m2) spelled += "+e5m2";
  return spelled;
}

const char* precision_name(Precision precision) noexcept {
  switch (precision) {
    case Precision::fp8: return "fp8";
    case Precision::bf16: return "bf16";
    case Precision::fp16: return "fp16";
    case Precision::automatic: return "auto";
  }
  return "?";
}

Precision parse_precision(const std::string& name) {
  for (const Precision x :
       {Precision::fp8, Precision::bf16, Precision::fp16, Precision::automatic}) {
    if (name == precision_name(x)) return x;
  }
  refuse("precision", name, "fp8, bf16, fp16 or auto");
}

const char* softmax_name(SoftmaxPath path) noexcept {
  return path == SoftmaxPath::exact ? "exact" : "direct";
}

const char* accumulator_name(Accumulator accumulator) noexcept {
  return accumulator == Accumulator::hopper ? "hopper" : "fp32";
}

SoftmaxPath parse_softmax(const std::string& name) {
  if (name == "exact") return SoftmaxPath::exact;
  if (name == "direct") return SoftmaxPath::direct;
  refuse("softmax", name, "exact or direct");
}

Accumulator parse_accumulator(const std::string& name) {
  if (name == "hopper") return Accumulator::hopper;
  if (name == "fp32") return Accumulator::fp32;
  refuse("accumulator", name, "hopper or fp32");
}

}  // namespace octavo
