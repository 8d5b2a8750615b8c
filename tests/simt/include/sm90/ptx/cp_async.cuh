// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device.h"

namespace octavo::sm90::ptx {

template <int kOffset, int kDstOffset>
void cp_async_16(void* dst, const char* src) {
  simt::copy_async(static_cast<char*>(dst) + kDstOffset, src + kOffset, true);
}
inline void cp_async_16(void* dst, const void* src, bool valid) {
  simt::copy_async(dst, src, valid);
}
inline void cp_async_commit() { simt::commit_copies(); }
template <int kPending>
void cp_async_wait() {
  static_assert(kPending == 0);
  simt::wait_for_copies();
}

}  // namespace octavo::sm90::ptx
