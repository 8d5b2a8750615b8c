# SPDX-License-Identifier: Apache-2.0
"""Octavo as an attention processor of Hugging Face's diffusers.

    from octavo.diffusers import OctavoAttnProcessor
    processor = OctavoAttnProcessor()
    pipe.unet.set_attn_processor(processor)  # or attention.set_processor(processor)
    ..
    print(processor.report)

For modules of diffusers' class Attention that have AttnProcessor2_0, self-attention and cross-attention, or
HunyuanAttnProcessor2_0. Masks and what else octavo.torch.why_not() names stay with torch's
scaled_dot_product_attention; the report says how often and why. Attention that joins text and image (SD3, Flux,
CogVideoX) has processors of its own: octavo.torch.sdpa_override() routes theirs.
"""

from typing import Any

import torch
from torch import Tensor

from .torch._sdpa import MIN_QUERIES, Report, _autocast, _compute, why_not

__all__ = ["OctavoAttnProcessor"]


class OctavoAttnProcessor:
    """AttnProcessor2_0 in 8 bits, or in 16. One instance may serve all modules of a model.

    report       which calls ran here and which stayed with torch, of all modules together
    precision, recipe, softmax
                 as in octavo.attention(); with "bf16" or "fp16" operands of another type stay with torch
    min_queries  calls of fewer query rows stay with torch
    """

    def __init__(
        self,
        *,
        precision: str = "fp8",
        recipe: str | None = None,
        softmax: str = "exact",
        min_queries: int = MIN_QUERIES,
    ) -> None:
        self.report = Report()
        self._precision, self._recipe, self._softmax, self._min_queries = precision, recipe, softmax, min_queries

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
        image_rotary_emb: tuple[Tensor, Tensor] | None = None,
        **others: Any,
    ) -> Tensor:
        """attn's output for hidden_states, of the same shape but for its width.

        attn                   diffusers' Attention, or a module with its attributes; those of options that it does
                               not have (norms, residual_connection, ..) may be missing
        hidden_states          [b, s, c], or [b, c, height, width] with a token per pixel
        encoder_hidden_states  [b, keys, c2] of cross-attention; None for self-attention
        attention_mask         as attn.prepare_attention_mask() takes it, added to the scores; torch computes the call
        temb                   for attn.spatial_norm
        image_rotary_emb       cos and sin, [s, head dim] each, equal for both channels of a pair (2i, 2i + 1): turns
                               the queries, and the keys of self-attention

        Raises ValueError for arguments of other shapes, NotImplementedError for modules with a second set of
        projections (added_kv_proj_dim) or none for the output (pre_only), and for other arguments.
        """
        _refuse(attn, hidden_states, temb, others)
        x = hidden_states
        if _part(attn, "spatial_norm") is not None:
            x = attn.spatial_norm(x, temb)
        if x.dim() == 4:
            x = x.flatten(2).transpose(1, 2)
        if _part(attn, "group_norm") is not None:
            x = attn.group_norm(x.transpose(1, 2)).transpose(1, 2)

        context = x if encoder_hidden_states is None else _normed_context(attn, encoder_hidden_states)
        q, k, v = _heads(attn, x, context)
        if image_rotary_emb is not None:
            q = _rotated(q, image_rotary_emb)
            k = _rotated(k, image_rotary_emb) if encoder_hidden_states is None else k
        y = self._attend(q, k, v, _mask(attn, attention_mask, context), _scale(attn))

        y = y.transpose(1, 2).flatten(2)
        for layer in attn.to_out:  # a projection and a dropout
            y = layer(y)
        if hidden_states.dim() == 4:
            y = y.transpose(1, 2).reshape(y.shape[0], -1, *hidden_states.shape[2:])
        if _part(attn, "residual_connection"):
            y = y + hidden_states
        return y / getattr(attn, "rescale_output_factor", 1.0)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
        """[b, h, s, d], computed here or by torch."""
        q, k, v = _autocast(q, k, v)
        grouped = q.shape[1] != k.shape[1]
        reason = why_not(
            q, k, v, mask, scale=scale, enable_gqa=grouped, min_queries=self._min_queries, precision=self._precision
        )
        self.report.count(reason)
        if reason:
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, scale=scale, enable_gqa=grouped
            )
        return _compute(q, k, v, False, scale, self._precision, self._recipe, self._softmax)


def _part(attn: Any, name: str) -> Any:
    return getattr(attn, name, None)


def _refuse(attn: Any, hidden_states: Tensor, temb: Any, others: dict[str, Any]) -> None:
    if hidden_states.dim() not in (3, 4):
        raise ValueError(
            f"octavo.diffusers: hidden_states is {list(hidden_states.shape)}; "
            "must be [b, s, c] or [b, c, height, width]"
        )
    override = "octavo.torch.sdpa_override() routes the calls of its own processor"
    if _part(attn, "added_kv_proj_dim") is not None:
        raise NotImplementedError(
            f"octavo.diffusers: {type(attn).__name__} has added_kv_proj_dim, a second set of projections; {override}"
        )
    if _part(attn, "to_out") is None:
        raise NotImplementedError(f"octavo.diffusers: {type(attn).__name__} has no to_out; {override}")
    if temb is not None and not isinstance(temb, Tensor):  # some modules pass their rotary embedding there
        raise NotImplementedError(f"octavo.diffusers: temb is a {type(temb).__name__}; must be a tensor; {override}")
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise NotImplementedError(f"octavo.diffusers: arguments are unknown: {', '.join(given)}")


def _normed_context(attn: Any, context: Tensor) -> Tensor:
    normed: Tensor = context if _part(attn, "norm_cross") is None else attn.norm_encoder_hidden_states(context)
    return normed


def _heads(attn: Any, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K and V as [b, h, s, d]. K and V may have fewer heads."""
    q, k, v = attn.to_q(x), attn.to_k(context), attn.to_v(context)
    head_dim = q.shape[2] // attn.heads
    q, k, v = (y.unflatten(2, (-1, head_dim)).transpose(1, 2) for y in (q, k, v))
    if _part(attn, "norm_q") is not None:
        q = attn.norm_q(q)
    if _part(attn, "norm_k") is not None:
        k = attn.norm_k(k)
    return q, k, v


def _rotated(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Turns each pair of channels of x [b, h, s, d] by its angle, in float32."""
    if not isinstance(rotary, (tuple, list)) or any(part.shape != x.shape[2:] for part in rotary):
        raise ValueError(f"octavo.diffusers: image_rotary_emb must be cos and sin, {list(x.shape[2:])} each")
    cos, sin = (part.to(x.device) for part in rotary)
    even, odd = x.float().reshape(*x.shape[:3], -1, 2).unbind(4)
    quarter_turn = torch.stack((-odd, even), 4).flatten(3)
    return (x.float() * cos + quarter_turn * sin).to(x.dtype)


def _mask(attn: Any, mask: Tensor | None, context: Tensor) -> Tensor | None:
    """[b, h, 1 or s, keys]"""
    if mask is None:
        return None
    batch, keys = context.shape[:2]
    prepared: Tensor = attn.prepare_attention_mask(mask, keys, batch)
    return prepared.reshape(batch, attn.heads, -1, prepared.shape[-1])


def _scale(attn: Any) -> float | None:
    """None is 1 / sqrt(head dim)."""
    return None if getattr(attn, "scale_qk", True) else 1.0
