# SPDX-License-Identifier: Apache-2.0
"""Octavo for PyTorch: an operator that torch.compile and CUDA graphs take, and drop-ins.

    import octavo.torch
    out = octavo.torch.attention(q, k, v, causal=True)                        # [b, s, h, d]
    out = octavo.torch.attention(q, k, v, causal=True, precision="bf16")      # nothing quantised
    out = octavo.torch.scaled_dot_product_attention(q, k, v, is_causal=True)  # [b, h, s, d], like torch's
    with octavo.torch.sdpa_override() as report:                              # all of a model's
        model(x)
    print(report)

On a CUDA device calls are queued on the current stream and return; nothing synchronises. On the CPU the engine
"emulate" computes the same function, slowly. There is no backward pass: operands that require a gradient are refused.
"""

from ._flash import flash_attn_func, flash_attn_varlen_func
from ._ops import attention
from ._sdpa import Report, scaled_dot_product_attention, sdpa_override, why_not

__all__ = [
    "Report",
    "attention",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "scaled_dot_product_attention",
    "sdpa_override",
    "why_not",
]
