// SPDX-License-Identifier: Apache-2.0
#pragma once

#define OCTAVO_VERSION_MAJOR 0
#define OCTAVO_VERSION_MINOR 1
#define OCTAVO_VERSION_PATCH 0

namespace octavo {

/// Semantic version of the library that is linked, e.g. "0.1.0".
const char* version() noexcept;

}  // namespace octavo
