# SPDX-License-Identifier: Apache-2.0
"""Octavo as an attention implementation of Hugging Face's transformers.

    import octavo.transformers
    report = octavo.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(.., attn_implementation="octavo")

Prefill runs in 8 bits, or in 16 where register() is told so. Decoding steps, padding masks and what else why_not() names
stay with torch's scaled_dot_product_attention; the report says how often and why. Torch has no softcap: models with one
decode here as well, and their padding masks raise NotImplementedError, as do models with attention sinks.
"""

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from .torch._sdpa import MIN_QUERIES, Report, _compute, why_not

__all__ = ["register"]


def register(
    name: str = "octavo",
    *,
    precision: str = "fp8",
    recipe: str | None = None,
    softmax: str = "exact",
    min_queries: int = MIN_QUERIES,
) -> Report:
    """Makes attn_implementation=`name` known to transformers; the report counts its calls from now on.

    precision, recipe, softmax
                 as in octavo.attention(); with "bf16" or "fp16" operands of another type stay with torch
    min_queries  calls of fewer query rows, such as decoding steps, stay with torch
    """
    report = Report()

    def forward(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        causal = _is_causal(module, query, attention_mask, is_causal)
        softcap = others.get("softcap")
        # torch has no softcap: where there is one, decoding steps run here, too.
        least = min_queries if softcap is None else 1
        reason = why_not(
            query, key, value, attention_mask, dropout, causal, scaling, True, min_queries=least, precision=precision
        )
        if others.get("position_bias") is not None:
            reason = reason or "position_bias is given"
        if others.get("s_aux") is not None:
            raise NotImplementedError(
                "octavo.transformers: the model has attention sinks (s_aux), which no path here adds"
            )
        if reason and softcap is not None:
            raise NotImplementedError(
                f"octavo.transformers: {reason}; and torch's attention has no softcap ({softcap})"
            )
        report.count(reason)
        if reason:
            out: tuple[torch.Tensor, None] = sdpa_attention_forward(
                module, query, key, value, attention_mask, dropout, scaling, is_causal, **others
            )
            return out
        y = _compute(query, key, value, causal, scaling, precision, recipe, softmax, softcap or 0.0)
        return y.transpose(1, 2), None

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, sdpa_mask)
    return report


def _is_causal(
    module: torch.nn.Module, query: torch.Tensor, attention_mask: torch.Tensor | None, is_causal: bool | None
) -> bool:
    """As transformers' own sdpa decides: a mask says all; one query row sees every key."""
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    return query.shape[2] > 1 and attention_mask is None and is_causal
