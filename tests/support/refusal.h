// SPDX-License-Identifier: Apache-2.0
// Calls that must be refused.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "octavo/error.h"

namespace octavo::test {

/// The call throws an Error whose sentence has `part`.
inline void expect_error(const std::string& part, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error; must say: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace octavo::test
