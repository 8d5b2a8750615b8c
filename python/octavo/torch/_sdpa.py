# SPDX-License-Identifier: Apache-2.0
"""scaled_dot_product_attention with torch's signature, and routing a whole model's calls to it."""

import math
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from ._ops import attention

# Fewer query rows than this fill no tile of 64 rows, while in 8 bits all of K and V would still be quantised anew.
MIN_QUERIES = 16


def why_not(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    min_queries: int = MIN_QUERIES,
    precision: str = "fp8",
) -> str:
    """Why a call of scaled_dot_product_attention stays with torch; "" where Octavo computes it."""
    if query.is_nested or key.is_nested or value.is_nested:
        return "operands are nested tensors"
    if attn_mask is not None:
        return "attn_mask is given: Octavo has causal and window masks and key lengths, no mask tensors"
    if dropout_p != 0.0:
        return "dropout_p is not 0"
    if scale is not None and not 0 < scale < math.inf:
        return f"scale is {scale}: must be positive and finite"
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        return "a gradient is required: there is no backward pass"
    q, k, v = query.shape, key.shape, value.shape
    if not len(q) == len(k) == len(v) == 4:
        return "operands are not [b, h, s, d]"
    dtype, device = query.dtype, query.device
    if dtype not in _DTYPES:
        return f"dtype is {dtype}"
    wanted = _DTYPE_OF.get(precision, dtype)
    if dtype != wanted:
        return f"dtype is {dtype}: must be {wanted} where precision is {precision}"
    if not dtype == key.dtype == value.dtype or not device == key.device == value.device:
        return "dtypes or devices differ"
    if device.type not in ("cuda", "cpu"):
        return f"device is {device.type}"
    if q[2] < min_queries:
        cost = "K and V would be quantised anew for them" if precision == "fp8" else "they fill no tile"
        return f"fewer than {min_queries} query rows, as when decoding: {cost}"
    if q[1] != k[1] and not enable_gqa:
        return "head counts differ without enable_gqa"
    if k[2] == 0 or k[1] == 0 or q[1] % k[1] != 0 or k[:3] != v[:3] or q[0] != k[0] or q[3] != k[3]:
        return "shapes do not fit, or there is no key"
    if not 0 < q[3] <= 256 or q[3] % 8 != 0 or not 0 < v[3] <= 256 or v[3] % 8 != 0:
        return f"head dims are {q[3]} and {v[3]}: must be multiples of 8 up to 256"
    if not query.stride(3) == key.stride(3) == value.stride(3) == 1:
        return "the last stride is not 1"
    if device.type != "cuda":
        return ""
    if not _is_hopper(device.index):
        return "the GPU is not of compute capability 9.0 (Hopper)"
    if precision in _DTYPE_OF and not all(_read_in_place(x) for x in (query, key, value)):
        return "operands are broadcast, or strides or bases no multiples of 16 bytes: must be copied in 16 bits"
    return ""


def _read_in_place(x: Tensor) -> bool:
    """Whether the kernels can read 16-bit operands where they are. What is traced has no address yet."""
    strides = (stride for stride, extent in zip(x.stride()[:3], x.shape[:3], strict=True) if extent > 1)
    based = torch.compiler.is_compiling() or x.data_ptr() % 16 == 0
    return based and all(stride > 0 and stride % 8 == 0 for stride in strides)


_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))
_DTYPE_OF = {"bf16": torch.bfloat16, "fp16": torch.float16}  # by precision


_hopper: dict[int, bool] = {}  # by device


def _is_hopper(index: int) -> bool:
    if index not in _hopper:
        _hopper[index] = torch.cuda.get_device_capability(index) == (9, 0)
    return _hopper[index]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    precision: str = "fp8",
    recipe: str | None = None,
    softmax: str = "exact",
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention in 8 bits, or in 16, arguments and masks as torch defines them.

    query      [b, hq, sq, d], key [b, hkv, sk, d], value [b, hkv, sk, dv] in float32, float16 or bfloat16; hq a
               multiple of hkv, different only with enable_gqa. Returns [b, hq, sq, dv]
    attn_mask  must be None, dropout_p 0: else NotImplementedError, which sdpa_override() avoids by calling torch's
    is_causal  query i sees keys up to i ("top-left"), also where sq and sk differ
    scale      default 1 / sqrt(d)
    precision, recipe, softmax
               as in octavo.attention()

    Source: Shah et al. 2024 (FlashAttention-3), section 3.3; docs/data_path.md.
    """
    query, key, value = _autocast(query, key, value)
    reason = why_not(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, min_queries=1, precision=precision
    )
    if reason:
        raise NotImplementedError(f"octavo.torch.scaled_dot_product_attention: {reason}")
    return _compute(query, key, value, is_causal, scale, precision, recipe, softmax)


def _autocast(*operands: Tensor) -> tuple[Tensor, ...]:
    """Under torch.autocast in its type, as torch's own function has them."""
    device = operands[0].device.type
    if not torch.is_autocast_enabled(device):
        return operands
    dtype = torch.get_autocast_dtype(device)
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in operands)


def _compute(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool,
    scale: float | None,
    precision: str,
    recipe: str | None,
    softmax: str,
    softcap: float = 0.0,
) -> Tensor:
    sq, sk = query.shape[2], key.shape[2]
    window = None
    if is_causal:
        if sq < sk:  # no query sees a key beyond the first sq
            key, value, sk = key[:, :, :sq], value[:, :, :sq], sq
        # Octavo's masks are aligned with the last keys: i + sk - sq + right = i.
        window = (None, sq - sk)
    out = attention(
        query, key, value, window=window, softcap=softcap, sm_scale=scale, precision=precision, recipe=recipe,
        softmax=softmax, layout="bhsd",
    )  # fmt: skip
    assert isinstance(out, Tensor)
    return out


class Report:
    """Which calls went where. calls: computed here; kept: reason -> calls that stayed with torch."""

    def __init__(self) -> None:
        self.calls = 0
        self.kept: Counter[str] = Counter()

    def count(self, reason: str) -> None:
        """One call, that stays with torch where there is a reason."""
        if torch.compiler.is_compiling():  # a compiled graph runs without this code
            return
        if reason:
            self.kept[reason] += 1
        else:
            self.calls += 1

    def __str__(self) -> str:
        lines = [f"octavo computed {self.calls} of {self.calls + self.kept.total()} attention calls"]
        lines += [f"  {count} stayed with torch: {reason}" for reason, count in self.kept.most_common()]
        return "\n".join(lines)


_overrides: list["_Override"] = []  # in place, the last one first in line


class _Override:
    """What sdpa_override() returns: in place from then on, until remove() or the end of a with block."""

    def __init__(self, precision: str, recipe: str | None, softmax: str, min_queries: int) -> None:
        self.report = Report()
        self._precision, self._recipe, self._softmax, self._min_queries = precision, recipe, softmax, min_queries
        self._before: Callable[..., Tensor] = torch.nn.functional.scaled_dot_product_attention
        _overrides.append(self)
        torch.nn.functional.scaled_dot_product_attention = self._route

    def remove(self) -> Report:
        """Gives torch back the function it had before; returns the report. Once is enough, in any order."""
        if self in _overrides:
            _overrides.remove(self)
            if torch.nn.functional.scaled_dot_product_attention == self._route:
                torch.nn.functional.scaled_dot_product_attention = self._next()
        return self.report

    def _next(self) -> Callable[..., Tensor]:
        """What was in place before, less what has been removed since."""
        before = self._before
        owner = getattr(before, "__self__", None)
        return owner._next() if isinstance(owner, _Override) and owner not in _overrides else before

    def __enter__(self) -> Report:
        return self.report

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __str__(self) -> str:
        return str(self.report)

    def _route(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        **unknown: Any,
    ) -> Tensor:
        if self in _overrides:
            q, k, v = _autocast(query, key, value)
            reason = why_not(
                q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa, min_queries=self._min_queries,
                precision=self._precision,
            )  # fmt: skip
            reason = reason or ("arguments are unknown: " + ", ".join(unknown) if unknown else "")
            self.report.count(reason)
            if not reason:
                return _compute(q, k, v, is_causal, scale, self._precision, self._recipe, self._softmax)
        return self._next()(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa, **unknown
        )


def sdpa_override(
    *, precision: str = "fp8", recipe: str | None = None, softmax: str = "exact", min_queries: int = MIN_QUERIES
) -> _Override:
    """Routes every torch.nn.functional.scaled_dot_product_attention of the process here.

        with octavo.torch.sdpa_override() as report: ..     # or
        override = octavo.torch.sdpa_override(); ..; print(override.remove())

    Calls that Octavo does not compute (attn_mask, dropout, gradients, other devices, with precision "bf16" or "fp16"
    operands of another type: why_not()) and those of fewer than `min_queries` query rows, such as decoding steps, stay
    with torch. The report counts both, by reason; calls inside torch.compile are routed while they are traced and not
    counted. Modules that imported the function by name before keep torch's. precision, recipe and softmax are those of
    octavo.attention().
    """
    return _Override(precision, recipe, softmax, min_queries)
