// SPDX-License-Identifier: Apache-2.0
#include "octavo/version.h"

#define OCTAVO_STRING_(x) #x
#define OCTAVO_STRING(x) OCTAVO_STRING_(x)

namespace octavo {

const char* version() noexcept {
  return OCTAVO_STRING(OCTAVO_VERSION_MAJOR) "." OCTAVO_STRING(
      OCTAVO_VERSION_MINOR) "." OCTAVO_STRING(OCTAVO_VERSION_PATCH);
}

}  // namespace octavo
