# SPDX-License-Identifier: Apache-2.0
"""The operator octavo::attention, its shapes for tracing, and the call that users make."""

import torch
from torch import Tensor

from .. import QuantizedTensor
from .. import attention as _call
from .._arguments import lse_shape, open_sides, without_gradient

_LIBRARY = torch.library.Library("octavo", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "attention(Tensor q, Tensor k, Tensor v, Tensor? q_descale, Tensor? k_descale, Tensor? v_descale, "
    "SymInt window_left, SymInt window_right, float softcap, float? sm_scale, str? recipe, str softmax, "
    "int num_splits, Tensor? key_lengths, ScalarType? out_dtype, bool return_lse, str layout, str engine) "
    "-> (Tensor, Tensor)",
    tags=(torch.Tag.needs_fixed_stride_order,),
)


def _new_output(q: Tensor, v: Tensor, out_dtype: torch.dtype | None, layout: str) -> Tensor:
    """[b, s, h, d] in memory whatever the layout: what a model's next projection takes without a copy."""
    dtype = out_dtype or (torch.bfloat16 if q.dtype in (torch.float8_e4m3fn, torch.int8) else q.dtype)
    if layout == "bhsd":
        b, h, s, _ = q.shape
        return q.new_empty((b, s, h, v.shape[3]), dtype=dtype).transpose(1, 2)
    return q.new_empty((*q.shape[:3], v.shape[3]), dtype=dtype)


def _new_lse(q: Tensor, layout: str, wanted: bool) -> Tensor:
    return q.new_empty(lse_shape(q.shape, layout) if wanted else (0,), dtype=torch.float32)


def _compute(
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
    recipe: str | None,
    softmax: str,
    num_splits: int,
    key_lengths: Tensor | None,
    out_dtype: torch.dtype | None,
    return_lse: bool,
    layout: str,
    engine: str,
) -> tuple[Tensor, Tensor]:
    ranks_fit = q.dim() == v.dim() == 4  # else the library refuses one of them
    descales = (q_descale, k_descale, v_descale)
    operands = [
        x if descale is None else QuantizedTensor(x, descale) for x, descale in zip((q, k, v), descales, strict=True)
    ]
    lengths = key_lengths if key_lengths is None or key_lengths.is_cuda else key_lengths.tolist()
    result = _call(
        *operands,
        window=(window_left, window_right),
        softcap=softcap,
        sm_scale=sm_scale,
        recipe=recipe,
        softmax=softmax,
        num_splits=num_splits,
        key_lengths=lengths,
        out=_new_output(q, v, out_dtype, layout) if ranks_fit else None,
        return_lse=return_lse,
        layout=layout,
        engine=engine,
    )
    if not return_lse:
        return result, _new_lse(q, layout, False)
    out, lse = result
    return out, torch.as_tensor(lse)


def _trace(
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
    recipe: str | None,
    softmax: str,
    num_splits: int,
    key_lengths: Tensor | None,
    out_dtype: torch.dtype | None,
    return_lse: bool,
    layout: str,
    engine: str,
) -> tuple[Tensor, Tensor]:
    return _new_output(q, v, out_dtype, layout), _new_lse(q, layout, return_lse)


for _key in ("CUDA", "CPU"):
    _LIBRARY.impl("attention", _compute, _key)  # type: ignore[no-untyped-call]
torch.library.register_fake("octavo::attention", _trace, lib=_LIBRARY)
_operator = torch.ops.octavo.attention.default


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    softcap: float = 0.0,
    sm_scale: float | None = None,
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
    """octavo.attention() as an operator of PyTorch (octavo::attention): traced by torch.compile, with dynamic
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
    out, lse = _operator(
        q, k, v, q_descale, k_descale, v_descale, left, right, softcap, sm_scale, recipe, softmax, num_splits,
        key_lengths, out_dtype, return_lse, layout, engine,
    )  # fmt: skip
    return (out, lse) if return_lse else out
