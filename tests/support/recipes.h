// SPDX-License-Identifier: Apache-2.0
// Walks over recipes and softmax paths.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "octavo/attention.h"
#include "octavo/quantize.h"

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
