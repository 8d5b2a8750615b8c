// SPDX-License-Identifier: Apache-2.0
// Tests of device code on the CPU. Arguments: GoogleTest's, then forward, backward or random, the
// order of the threads; copies arrive at once in the first, late in the others.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "simt.h"

int main(int argc, char** argv) {
  using octavo::simt::Order;
  testing::InitGoogleTest(&argc, argv);
  const std::string name = argc > 1 ? argv[1] : "forward";
  if (name != "forward" && name != "backward" && name != "random") {
    std::fprintf(stderr, "the order is '%s'; must be forward, backward or random\n", name.c_str());
    return 2;
  }
  const Order order = name == "forward"    ? Order::forward
                      : name == "backward" ? Order::backward
                                           : Order::random;
  octavo::simt::set_schedule({order, order != Order::forward});
  return RUN_ALL_TESTS();
}
