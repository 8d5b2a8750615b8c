# SPDX-License-Identifier: Apache-2.0
"""Block-scaled FP8 attention for NVIDIA Hopper, with CPU engines that need no GPU.

    out = octavo.attention(q, k, v, causal=True)             # numpy, or any array with DLPack
    out = octavo.attention(q, k, v, precision="bf16")        # of bfloat16 operands, nothing quantised
    qkv = octavo.quantize(q, k, v, recipe="block")           # FP8 codes and descales
    out, lse = octavo.attention_quantized(qkv, causal=True, return_lse=True)
"""

from typing import Any

from . import _octavo
from ._attention import attention, attention_quantized, why_unsupported
from ._quantized import QuantizedQkv, QuantizedTensor, quantize

__version__ = _octavo.version()

__all__ = [
    "QuantizedQkv",
    "QuantizedTensor",
    "attention",
    "attention_quantized",
    "info",
    "quantize",
    "why_unsupported",
]


def info() -> dict[str, Any]:
    """What this build is and can run on.

    version  of the library
    cuda     whether the Hopper kernels are in it
    device   the name and size of the GPU they run on, or why there is none
    engines  names in the order in which "auto" asks them; "reference" runs only by name
    recipes  names
    simd     the SIMD targets that the engine "emulate" can use here, best first
    """
    return {
        "version": _octavo.version(),
        "cuda": _octavo.built_with_cuda,
        "device": _octavo.device_sentence(),
        "engines": _octavo.engine_names(),
        "recipes": _octavo.recipe_names(),
        "simd": _octavo.simd_targets(),
    }
