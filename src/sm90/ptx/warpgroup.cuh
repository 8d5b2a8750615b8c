// SPDX-License-Identifier: Apache-2.0
// Registers move between warpgroups. PTX ISA, "setmaxnreg".
#pragma once

namespace octavo::sm90::ptx {

template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace octavo::sm90::ptx
