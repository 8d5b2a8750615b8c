// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "octavo/attention.h"
#include "octavo/error.h"

namespace octavo {
namespace {

TEST(Recipe, NamesReadBack) {
  for (const std::string& base : recipe_names()) {
    for (const char* options : {"", "+rotate", "+smooth", "+int8", "+e5m2", "+rotate+smooth+int8",
                                "+rotate+smooth+e5m2"}) {
      const Recipe recipe = parse_recipe(base + options);
      EXPECT_EQ(parse_recipe(recipe_name(recipe)), recipe) << base << options;
    }
    EXPECT_EQ(recipe_name(parse_recipe(base)), base);
  }
}

TEST(Recipe, NamedOnesAreWhatTheTableSays) {
  EXPECT_EQ(Recipe::per_tensor().k, Granularity::tensor);
  EXPECT_EQ(Recipe::per_head().v, Granularity::head);
  EXPECT_EQ(Recipe::block().q, Granularity::block);
  EXPECT_TRUE(Recipe::standard().rotate);
  EXPECT_TRUE(Recipe::standard().smooth_k);
  EXPECT_EQ(Recipe::strict_causal().v, Granularity::token);
  EXPECT_FALSE(Recipe::strict_causal().smooth_k) << "a mean over all keys would see later tokens";
}

TEST(Recipe, SpelledOutWhereNoNameFits) {
  Recipe recipe = Recipe::block();
  recipe.v = Granularity::head;
  EXPECT_EQ(recipe_name(recipe), "q:block,k:block,v:head");
}

}  // namespace
}  // namespace octavo
