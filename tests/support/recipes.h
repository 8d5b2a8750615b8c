// SPDX-License-Identifier: Apache-2.0
// Walks over recipes and softmax paths.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "octavo/attention.h"
#include "octavo/quantize.h"
#include "support/compare.h"

namespace octavo::test {

inline std::vector<Recipe> named_recipes() {
  std::vector<Recipe> recipes;
  for (const std::string& name : recipe_names()) recipes.push_back(parse_recipe(name));
  return recipes;
}

/// Whether the emulation computes this pair: one descale per token of V is folded into P, which the
/// direct path never holds as a number.
inline bool is_supported(const Recipe& recipe, SoftmaxPath path) {
  return path == SoftmaxPath::exact || recipe.v != Granularity::token;
}

/// 8 bits against double on N(0, 1) operands: measured 0.045 to 0.058 in E4M3, 0.033 to 0.041 with
/// Q and K in INT8, single rows up to 0.11. E4M3's low bound is over the error of P and V alone.
inline Bounds normal_bounds(const Recipe& recipe) {
  return recipe.qk_format == DType::i8 ? Bounds{0.03, 0.048, 0.2} : Bounds{0.04, 0.065, 0.2};
}

/// Calls body(recipe, path) for every named recipe and both softmax paths, where supported.
template <typename Body>
void for_each_recipe(const Body& body) {
  for (const Recipe& recipe : named_recipes()) {
    for (const SoftmaxPath path : {SoftmaxPath::exact, SoftmaxPath::direct}) {
      if (!is_supported(recipe, path)) continue;
      SCOPED_TRACE(recipe_name(recipe) + " " + softmax_name(path));
      body(recipe, path);
    }
  }
}

}  // namespace octavo::test
