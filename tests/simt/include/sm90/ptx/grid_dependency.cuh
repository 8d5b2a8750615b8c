// SPDX-License-Identifier: Apache-2.0
// Launches run one after another.
#pragma once

namespace octavo::sm90::ptx {
inline void launch_dependents() {}
inline void wait_for_launch_before() {}
}  // namespace octavo::sm90::ptx
