// SPDX-License-Identifier: Apache-2.0
// Sanitizers cost a factor of ten: under them tests take each path on fewer or smaller operands.
#pragma once

namespace octavo::test {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace octavo::test
