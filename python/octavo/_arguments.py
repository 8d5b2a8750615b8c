# SPDX-License-Identifier: Apache-2.0
"""Checks and conversions that need Python's own types. All other rules are the library's."""

import operator
import sys
from typing import Any

import ml_dtypes
import numpy as np

_LIBRARY_NAMES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
    "int8": "i8",
}
NUMPY_TYPES: dict[str, Any] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i8": np.dtype(np.int8),
}
# numpy exports these neither through DLPack nor as a buffer: their bytes go, and the name beside them.
_BYTES_OF = {"bf16": np.uint16, "f8_e4m3": np.uint8, "f8_e5m2": np.uint8}


def library_name(name: str) -> str:
    """The library's name of a framework's: "bf16" for "torch.bfloat16". Others are returned bare."""
    name = name.rpartition(".")[2]
    return _LIBRARY_NAMES.get(name, name)


def dtype_name(dtype: Any) -> str | None:
    """The library's name of a type: "bf16" for "bf16", "bfloat16", ml_dtypes.bfloat16, torch.bfloat16.

    Others are returned as they are; the library refuses them with the list of names.
    """
    if dtype is None:
        return None
    try:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except TypeError:  # of another framework
        name = str(dtype)
    return library_name(name)


def dtype_names(function: str, dtype: Any) -> tuple[str | None, str | None, str | None]:
    """The argument `dtype`, one for q, k and v or one each, as the library's names."""
    if dtype is None:
        return None, None, None
    if not isinstance(dtype, (tuple, list)):
        return (dtype_name(dtype),) * 3
    if len(dtype) != 3:
        raise ValueError(f"{function}: dtype has {len(dtype)} entries; must be one type, or those of q, k and v")
    q, k, v = map(dtype_name, dtype)
    return q, k, v


def exchangeable(function: str, name: str, array: Any, stated: str | None) -> tuple[Any, str | None]:
    """What to hand to the library for an array, and the type to name beside it."""
    array = without_gradient(function, name, array)
    if not isinstance(array, np.ndarray):
        return array, stated
    if not array.dtype.isnative:
        raise ValueError(f"{function}: {name}.dtype is {array.dtype.str}; must be in this machine's byte order")
    own = _LIBRARY_NAMES.get(array.dtype.name)
    if own in _BYTES_OF:
        if stated not in (None, own):
            raise ValueError(f"{function}: {name}.dtype is {own}; must be {stated}, as dtype says")
        return array.view(_BYTES_OF[own]), own
    if array.dtype.kind not in "biufc":
        raise ValueError(
            f"{function}: {name}.dtype is {array.dtype}; must be f32, f16, bf16, f8_e4m3, f8_e5m2 or i8"
        )
    return array, stated


def without_gradient(function: str, name: str, array: Any) -> Any:
    """The array, detached where PyTorch records no gradients now; refused where it requires one."""
    if not getattr(array, "requires_grad", False):
        return array
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor) or torch.is_grad_enabled():
        raise NotImplementedError(
            f"{function}: {name} requires a gradient; must be detached or under torch.no_grad(), since there is "
            "no backward pass"
        )
    return array.detach()


def integer(function: str, name: str, value: Any, bits: int = 32) -> int:
    """An int that the library can hold."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{function}: {name} is {value!r}; must be an integer") from None
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(f"{function}: {name} is {number}; must fit {bits} bits")
    return number


def real(function: str, name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{function}: {name} is {value!r}; must be a number") from None


def text(function: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{function}: {name} is {value!r}; must be a string")
    return value


def lengths(function: str, key_lengths: Any) -> list[int]:
    """key_lengths as a list; empty where it is None."""
    if key_lengths is None:
        return []
    found = [integer(function, f"key_lengths[{i}]", n, 64) for i, n in enumerate(key_lengths)]
    if not found:  # which the library would read as "all keys"
        raise ValueError(f"{function}: key_lengths is empty; must have an entry a batch entry, or be None for all keys")
    return found


def open_sides(function: str, causal: bool, window: Any) -> tuple[Any, Any]:
    """How many keys back and ahead a query sees, as given; -1 is no limit."""
    if window is None:
        return (-1, 0) if causal else (-1, -1)
    if causal:
        raise ValueError(f"{function}: causal is True; must be False beside window ({window}): a call has one mask")
    try:
        left, right = window
    except (TypeError, ValueError):
        raise ValueError(f"{function}: window is {window!r}; must be a pair (left, right), None for no limit") from None
    return -1 if left is None else left, -1 if right is None else right


def mask_sides(function: str, causal: bool, window: Any) -> tuple[int, int]:
    """open_sides() as integers that the library can hold."""
    left, right = open_sides(function, causal, window)
    return integer(function, "window[0]", left, 64), integer(function, "window[1]", right, 64)


def lse_shape(q_shape: Any, layout: str) -> tuple[int, int, int]:
    """[b, hq, sq] of a q of either layout."""
    b, s, h = q_shape[:3] if layout == "bshd" else (q_shape[0], q_shape[2], q_shape[1])
    return b, h, s
