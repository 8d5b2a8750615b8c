# SPDX-License-Identifier: Apache-2.0
"""The operators octavo::attention and octavo::attention_with_lse, their shapes for tracing, and the call that users make."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import QuantizedTensor
from .. import attention as _call
from .._arguments import lse_shape, open_sides, without_gradient

_LIBRARY = torch.library.Library("octavo", "DEF")  # type: ignore[no-untyped-call]
_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? q_descale, Tensor? k_descale, Tensor? v_descale, "
    "SymInt window_left, SymInt window_right, float softcap, float? sm_scale, str precision, str? recipe, "
    "str softmax, int num_splits, Tensor? key_lengths, ScalarType? out_dtype, str layout, str engine"
)


def _new_output(q: Tensor, v: Tensor, out_dtype: torch.dtype | None, layout: str) -> Tensor:
    """[b, s, h, d] in memory whatever the layout: what a model's next projection takes without a copy."""
    dtype = out_dtype or (torch.bfloat16 if q.dtype in (torch.float8_e4m3fn, torch.int8) else q.dtype)
    if layout == "bhsd":
        b, h, s, _ = q.shape
        return q.new_empty((b, s, h, v.shape[3]), dtype=dtype).transpose(1, 2)
    return q.new_empty((*q.shape[:3], v.shape[3]), dtype=dtype)


def _new_lse(q: Tensor, layout: str) -> Tensor:
    return q.new_empty(lse_shape(q.shape, layout), dtype=torch.float32)


def _operand(x: Tensor, descale: Tensor | None) -> Any:
    return x if descale is None else QuantizedTensor(x, descale)


def _compute(
    return_lse: bool,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_descale: Tensor | None,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    window_left: int,
    window_right: int,
    softcap: float,
    sm_scale: float | None,
    precision: str,
    recipe: str | None,
    softmax: str,
    num_splits: int,
    key_lengths: Tensor | None,
    out_dtype: torch.dtype | None,
    layout: str,
    engine: str,
) -> Any:
    # On a GPU octavo.attention makes that of "bshd" itself; with other ranks the library refuses q or v.
    own_output = (layout == "bhsd" or not q.is_cuda) and q.dim() == v.dim() == 4
    lengths = key_lengths if key_lengths is None or key_lengths.is_cuda else key_lengths.tolist()
    result = _call(
        _operand(q, q_descale),
        _operand(k, k_descale),
        _operand(v, v_descale),
        window=(window_left, window_right),
        softcap=softcap,
        sm_scale=sm_scale,
        precision=precision,
        recipe=recipe,
        softmax=softmax,
        num_splits=num_splits,
        key_lengths=lengths,
        out=_new_output(q, v, out_dtype, layout) if own_output else None,
        out_dtype=out_dtype,
        return_lse=return_lse,
        layout=layout,
        engine=engine,
    )
    if not return_lse:
        return result
    out, lse = result
    return out, torch.as_tensor(lse)


def _trace(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Tensor:
    *_, out_dtype, layout, _ = others
    return _new_output(q, v, out_dtype, layout)


def _trace_with_lse(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    *_, layout, _ = others
    return _trace(q, k, v, *others), _new_lse(q, layout)


def _define(name: str, results: str, compute: Callable[..., Any], trace: Callable[..., Any]) -> None:
    _LIBRARY.define(  # type: ignore[no-untyped-call]
        f"{name}({_ARGUMENTS}) -> {results}", tags=(torch.Tag.needs_fixed_stride_order,)
    )
    for key in ("CUDA", "CPU"):
        _LIBRARY.impl(name, compute, key)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"octavo::{name}", trace, lib=_LIBRARY)


_define("attention", "Tensor", partial(_compute, False), _trace)
_define("attention_with_lse", "(Tensor, Tensor)", partial(_compute, True), _trace_with_lse)
_attention = torch.ops.octavo.attention.default
_attention_with_lse = torch.ops.octavo.attention_with_lse.default


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    softcap: float = 0.0,
    sm_scale: float | None = None,
    precision: str = "fp8",
    recipe: str | None = None,
    softmax: str = "exact",
    num_splits: int = 1,
    key_lengths: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    return_lse: bool = False,
    layout: str = "bshd",
    engine: str = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    """octavo.attention() as an operator of PyTorch (octavo::attention, octavo::attention_with_lse): traced by torch.compile, with dynamic
    lengths too, and captured by CUDA graphs.

    q, k, v      [b, s, h, d], or [b, h, s, d] with layout="bhsd"; all on one device; float32, float16, bfloat16, or
                 float8_e4m3fn (k and v also float8_e5m2, q and k also int8) with a descale
    q_descale, k_descale, v_descale
                 float32 [1], [h], [b, h], [b, h, blocks] or [b, h, s]: value = code * descale
    key_lengths  int32 [b]: valid keys of each batch entry. On the GPU it is not read before the kernels run
    out_dtype    default: that of q, bfloat16 where q is quantised

    Other arguments and errors are those of octavo.attention(). The output of layout="bhsd" is a transposed view of
    [b, s, h, d], like that of torch's flash attention. Raises NotImplementedError where an operand requires a gradient.
    """
    if torch.is_grad_enabled():
        for name, x in (("q", q), ("k", k), ("v", v)):
            without_gradient("octavo.torch.attention", name, x)
    left, right = open_sides("octavo.torch.attention", causal, window)
    operator = _attention_with_lse if return_lse else _attention
    result: Tensor | tuple[Tensor, Tensor] = operator(
        q, k, v, q_descale, k_descale, v_descale, left, right, softcap, sm_scale, precision, recipe, softmax,
        num_splits, key_lengths, out_dtype, layout, engine,
    )  # fmt: skip
    return result
