// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace octavo::sm90::ptx {
inline int opaque(int x) { return x; }
}  // namespace octavo::sm90::ptx
