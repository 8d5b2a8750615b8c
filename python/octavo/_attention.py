# SPDX-License-Identifier: Apache-2.0
"""The attention call: arguments of Python to one call of the library."""

import atexit
import functools
import math
from typing import Any

from . import _octavo
from ._arguments import (
    dtype_name,
    dtype_names,
    exchangeable,
    integer,
    lengths,
    lse_shape,
    mask_sides,
    real,
    text,
    without_gradient,
)
from ._place import Place, device_lengths, exchange_on_device, is_torch_cuda, place_of
from ._quantized import QuantizedQkv, QuantizedTensor

_FUNCTION = "attention_forward"  # the library's name, with which its own sentences begin


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: Any = None,
    softcap: float = 0.0,
    sm_scale: float | None = None,
    precision: str = "fp8",
    recipe: str | None = None,
    softmax: str = "exact",
    accumulator: str = "hopper",
    promote_every: int = 1,
    num_splits: int = 1,
    key_lengths: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    return_lse: bool = False,
    layout: str = "bshd",
    dtype: Any = None,
    engine: str = "auto",
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """softmax(mask(softcap(sm_scale q k^T))) v, both products in 8 bits, or in 16.

    q              [b, sq, hq, d], k [b, sk, hkv, d], v [b, sk, hkv, dv]: numpy arrays, PyTorch tensors or any
                   others with DLPack or a buffer, in host memory or on one CUDA device, of any strides but the
                   last, which is 1; no copies. hq is a multiple of hkv; d and dv are multiples of 8 up to 256.
                   float32, float16, bfloat16, or a QuantizedTensor (q: E4M3)
    causal         query i of sq sees the keys up to i + sk - sq
    window         (left, right): as many keys back and ahead of that one; None for no limit on a side
    softcap        scores become softcap tanh(score / softcap); 0: off
    sm_scale       default 1 / sqrt(d)
    precision      "fp8": 8 bits, Q, K and V as the recipe says. "bf16" or "fp16": q, k and v have that type already,
                   nothing is quantised, and P has it too: no recipe, softmax "exact", promote_every 1. "auto": that
                   of q, k and v where quantising should cost a Hopper GPU more than it gains, as with short
                   sequences, else "fp8"
    recipe         what Q, K and V become: "per_tensor", "per_head", "block", "fp8", "default" (of Q and K int8) or
                   "strict_causal", with "+rotate", "+smooth", "+int8" or "+e5m2" behind it where wanted. None:
                   "default", or "block" (with q or k in int8 "block+int8") where an operand is quantised already.
                   With int8 a NaN in k reaches all rows of the query tiles that visit its 128 keys, causal or not
    softmax        "exact", or "direct": E4M3 codes straight from the scores
    accumulator    "hopper" (bit-true model of the tensor cores) or "fp32"; of FP8 products, those of 16 bits sum in FP32
    promote_every  key tiles of 128 between promotions of P V to FP32; 0: never
    num_splits     1 to 64 ranges of keys attended by themselves and merged by their LSE
    key_lengths    valid keys of each batch entry: integers, or an int32 CUDA tensor [b], which is not read
                   until the kernels run
    out            array [b, sq, hq, dv] to write into: float32, float16 or bfloat16
    out_dtype      type of out; default that of q, bfloat16 where q is quantised
    return_lse     return (out, lse), lse [b, hq, sq] in float32: the natural log of the sum of exponentials,
                   -inf where a row sees no key
    layout         "bshd", or "bhsd": q, k, v and out are [b, h, s, d] (lse stays [b, h, s])
    dtype          the type of arrays that are uint16: "bf16" or "f16"; one, or one each for q, k and v
    engine         "auto", or of info()["engines"]: "sm90" (Hopper), "emulate" (its data path on the CPU),
                   "reference" (double precision, no FP8, never under "auto")
    threads        of the CPU engines; 0: one per core
    stream         for arrays on a CUDA device: its address, or a stream of PyTorch or CuPy. None: the current one
                   of PyTorch or CuPy, of others the legacy default stream. The call is queued there and returns; of
                   PyTorch's tensors another stream than the current one waits for that first

    Returns `out` where it is given, else a numpy array; for PyTorch and CuPy arrays on a device one of theirs, for
    others on a device an object with DLPack. The call releases the GIL. The function is that of
    FlashAttention-3 in FP8 (Shah et al. 2024); stages and formulas: docs/data_path.md.

    Raises ValueError for a wrong argument, TypeError for one of a wrong kind, NotImplementedError where no
    engine computes the call, RuntimeError where CUDA reports an error.
    """
    names = dtype_names(_FUNCTION, dtype)
    call = _call(
        layout, causal, window, softcap, sm_scale, precision, recipe, softmax, accumulator, promote_every,
        num_splits, engine, threads, key_lengths=key_lengths,
    )  # fmt: skip
    if dtype is None and stream is None and exchange_on_device(q, k, v, out) and not is_torch_cuda(key_lengths):
        q, k, v = without_gradient(_FUNCTION, "q", q), without_gradient(_FUNCTION, "k", k), without_gradient(_FUNCTION, "v", v)
        return call.attend(q, k, v, without_gradient(_FUNCTION, "out", out), _output_name(out_dtype), return_lse)
    described = [_set_operand(call, n, x, t) for n, x, t in zip("qkv", (q, k, v), names, strict=True)]
    return _finish(call, (q, k, v), described, layout, out, out_dtype, return_lse, key_lengths, stream)


def attention_quantized(
    qkv: QuantizedQkv,
    *,
    causal: bool = False,
    window: Any = None,
    softcap: float = 0.0,
    sm_scale: float | None = None,
    softmax: str = "exact",
    accumulator: str = "hopper",
    promote_every: int = 1,
    num_splits: int = 1,
    key_lengths: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    return_lse: bool = False,
    engine: str = "auto",
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """attention() on what quantize() returned: the same bits as attention() on its inputs.

    Arguments, results and errors are those of attention(); out has the layout of `qkv`, sm_scale defaults to
    1 / sqrt(qkv.head_dim), out_dtype to bfloat16. Under a recipe with scales that span several rows the
    key_lengths should be those of quantize().
    """
    if not isinstance(qkv, QuantizedQkv):
        raise TypeError(f"attention_quantized: qkv is a {type(qkv).__name__}; must be a QuantizedQkv")
    if sm_scale is None and qkv.head_dim > 0:
        sm_scale = 1 / math.sqrt(qkv.head_dim)
    call = _call(
        qkv.layout, causal, window, softcap, sm_scale, "fp8", None, softmax, accumulator, promote_every,
        num_splits, engine, threads, key_lengths=key_lengths,
    )  # fmt: skip
    described = [_set_operand(call, n, x, None) for n, x in zip("qkv", (qkv.q, qkv.k, qkv.v), strict=True)]
    if qkv.score_shift is not None:
        _set(call, "score_shift", qkv.score_shift, None)
    operands = (qkv.q, qkv.k, qkv.v, qkv.score_shift)
    return _finish(call, operands, described, qkv.layout, out, out_dtype, return_lse, key_lengths, stream)


def why_unsupported(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: Any = None,
    softcap: float = 0.0,
    sm_scale: float | None = None,
    precision: str = "fp8",
    recipe: str | None = None,
    softmax: str = "exact",
    accumulator: str = "hopper",
    promote_every: int = 1,
    num_splits: int = 1,
    key_lengths: Any = None,
    out_dtype: Any = None,
    layout: str = "bshd",
    dtype: Any = None,
    engine: str = "auto",
) -> str:
    """Why attention() with these arguments would raise NotImplementedError; "" where it would compute.

    Nothing is computed. Raises ValueError and TypeError as attention() does.
    """
    names = dtype_names(_FUNCTION, dtype)
    call = _call(
        layout, causal, window, softcap, sm_scale, precision, recipe, softmax, accumulator, promote_every,
        num_splits, engine, 0, key_lengths=key_lengths,
    )  # fmt: skip
    described = [_set_operand(call, n, x, t) for n, x, t in zip("qkv", (q, k, v), names, strict=True)]
    _set_results(call, _place_of(q), described, layout, None, out_dtype, False)
    return call.why_unsupported()


def _call(layout: Any, causal: Any, window: Any, *others: Any, key_lengths: Any) -> _octavo.Call:
    """A call whose tensors are yet to be set; `others`: those of _settings() from softcap on. key_lengths that are in
    device memory are left for _finish()."""
    settings = (layout, causal, *others)
    template = (_settings if _is_constant(window, settings) else _settings.__wrapped__)(window, *settings)
    if key_lengths is None or is_torch_cuda(key_lengths):
        return template.fresh([])
    return template.fresh(lengths(_FUNCTION, key_lengths))


_CONSTANT = frozenset((str, int, float, bool, type(None)))
_SIDES = frozenset((int, type(None)))


def _is_constant(window: Any, settings: tuple[Any, ...]) -> bool:
    """Whether a template may be kept: an object of another kind may have another value the next time. In a tuple 1.0
    would pass for 1."""
    plain = window is None or (type(window) is tuple and _SIDES.issuperset(map(type, window)))
    return plain and _CONSTANT.issuperset(map(type, settings))


@functools.lru_cache(maxsize=64, typed=True)
def _settings(
    window: Any,
    layout: Any,
    causal: Any,
    softcap: Any,
    sm_scale: Any,
    precision: Any,
    recipe: Any,
    softmax: Any,
    accumulator: Any,
    promote_every: Any,
    num_splits: Any,
    engine: Any,
    threads: Any,
) -> _octavo.Call:
    return _octavo.Call(
        layout=text(_FUNCTION, "layout", layout),
        window=mask_sides(_FUNCTION, causal, window),
        softcap=real(_FUNCTION, "softcap", softcap),
        sm_scale=None if sm_scale is None else real(_FUNCTION, "sm_scale", sm_scale),
        precision=text(_FUNCTION, "precision", precision),
        recipe=None if recipe is None else text(_FUNCTION, "recipe", recipe),
        softmax=text(_FUNCTION, "softmax", softmax),
        accumulator=text(_FUNCTION, "accumulator", accumulator),
        promote_every=integer(_FUNCTION, "promote_every", promote_every),
        num_splits=integer(_FUNCTION, "num_splits", num_splits),
        engine=text(_FUNCTION, "engine", engine),
        threads=integer(_FUNCTION, "threads", threads),
    )


atexit.register(_settings.cache_clear)  # before the extension looks for what is left of its types


def _set(call: _octavo.Call, name: str, array: Any, stated: str | None) -> tuple[tuple[int, ...], str]:
    if is_torch_cuda(array):
        return call.set_torch(name, without_gradient(_FUNCTION, name, array), stated)
    return call.set(name, *exchangeable(_FUNCTION, name, array, stated))


def _set_operand(call: _octavo.Call, name: str, x: Any, stated: str | None) -> tuple[tuple[int, ...], str]:
    """Sets an operand and its descales; returns its shape and type."""
    if isinstance(x, QuantizedTensor):
        _set(call, f"{name}_descale", x.descale, None)
        return _set(call, name, x.codes, x.dtype)
    return _set(call, name, x, stated)


def _output_name(out_dtype: Any) -> str | None:
    name = dtype_name(out_dtype)
    if name not in (None, "f32", "f16", "bf16"):
        raise ValueError(f"{_FUNCTION}: out_dtype is {name}; must be f32, f16 or bf16")
    return name


def _set_results(
    call: _octavo.Call,
    place: Place,
    described: list[tuple[tuple[int, ...], str]],
    layout: str,
    out: Any,
    out_dtype: Any,
    return_lse: bool,
) -> tuple[Any, Any]:
    """Sets out, made here where it is not given, and lse where it is wanted; returns both."""
    (q_shape, q_dtype), _, (v_shape, _) = described
    name = _output_name(out_dtype)
    if out is None:
        if name is None:
            name = q_dtype if q_dtype in ("f32", "f16", "bf16") else "bf16"
        ranks_fit = len(q_shape) == len(v_shape) == 4  # else the library refuses q or v before it sees out
        out = place.empty(q_shape[:3] + v_shape[3:] if ranks_fit else (0, 0, 0, 0), name)
    elif type(out).__module__.partition(".")[0] in ("jax", "jaxlib"):  # whose DLPack does not say so
        raise ValueError(f"{_FUNCTION}: out is read-only; must be writable")
    _set(call, "out", out, name)
    if not return_lse:
        return out, None
    lse = place.empty(lse_shape(q_shape if len(q_shape) == 4 else (0, 0, 0, 0), layout), "f32")
    _set(call, "lse", lse, None)
    return out, lse


def _place_of(operand: Any) -> Place:
    return place_of(operand.codes if isinstance(operand, QuantizedTensor) else operand)


def _finish(
    call: _octavo.Call,
    operands: tuple[Any, ...],
    described: list[tuple[tuple[int, ...], str]],
    layout: str,
    out: Any,
    out_dtype: Any,
    return_lse: bool,
    key_lengths: Any,
    stream: Any,
) -> Any:
    place = _place_of(operands[0])
    on_device = device_lengths(_FUNCTION, key_lengths, described[0][0][0])
    out, lse = _set_results(call, place, described, layout, out, out_dtype, return_lse)
    place.run(call, stream, on_device, (*operands, out, lse))
    return (out, lse) if return_lse else out
