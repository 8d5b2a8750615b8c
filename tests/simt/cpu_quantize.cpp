// SPDX-License-Identifier: Apache-2.0
// quantize() of the CPU alone, without the library of engines that the GPU's would come with.
#include "core/validate.h"
#include "emulate/emulate.h"
#include "octavo/quantize.h"

namespace octavo {

QuantizedQkv quantize(const QuantizeParams& params) {
  return emulate::quantise_all(validate(params));
}

}  // namespace octavo
