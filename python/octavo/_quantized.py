# SPDX-License-Identifier: Apache-2.0
"""Quantised operands: codes with their descales (docs/format.md)."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _octavo
from ._arguments import NUMPY_TYPES, dtype_name, dtype_names, exchangeable, integer, lengths, library_name, text
from ._place import TorchDevice, device_lengths, is_torch_cuda


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """One quantised operand: value = code * descale. Holds the arrays it is given, without copies.

    codes    [b, s, h, d] (or [b, h, s, d] for calls with layout="bhsd"): an FP8 or int8 array, or uint8 with `dtype`
    descale  float32 of shape [1], [h], [b, h], [b, h, blocks] or [b, h, s]; a block is 64 or 128 rows of Q, 128
             of K and V
    dtype    "f8_e4m3", "f8_e5m2" or "i8" (also as ml_dtypes, torch, .. call them); where left out, that of codes

    Pickles where its arrays do (PyTorch's float8 codes come back as uint8). Raises ValueError where codes are neither
    FP8 nor int8.
    """

    codes: Any
    descale: Any
    dtype: Any = None

    def __post_init__(self) -> None:
        stated = dtype_name(self.dtype)
        if is_torch_cuda(self.codes):  # without DLPack, which would cost more than the call
            shape, found = tuple(self.codes.shape), stated or library_name(str(self.codes.dtype))
        else:
            shape, found = _octavo.describe(
                "QuantizedTensor", "codes", *exchangeable("QuantizedTensor", "codes", self.codes, stated)
            )
        if found not in ("f8_e4m3", "f8_e5m2", "i8"):
            raise ValueError(f"QuantizedTensor: codes.dtype is {found}; must be f8_e4m3, f8_e5m2 or i8")
        if len(shape) != 4:
            raise ValueError(f"QuantizedTensor: codes.rank is {len(shape)}; must be 4")
        object.__setattr__(self, "dtype", found)

    def __reduce__(self) -> tuple[Any, ...]:
        codes = self.codes
        if type(codes).__module__ == "torch" and "float8" in str(codes.dtype):
            codes = codes.view(sys.modules["torch"].uint8)  # torch cannot unpickle its own float8 tensors
        return QuantizedTensor, (codes, self.descale, self.dtype)

    def __repr__(self) -> str:
        shape, descales = tuple(self.codes.shape), tuple(self.descale.shape)
        return f"QuantizedTensor({self.dtype} {list(shape)}, descale {list(descales)})"

    def dequantize(self, layout: str = "bshd") -> NDArray[np.float32]:
        """code * descale as a numpy array in float32, in the layout of the codes."""
        if is_torch_cuda(self.codes):
            return QuantizedTensor(self.codes.cpu(), self.descale.cpu(), self.dtype).dequantize(layout)
        known = isinstance(self.codes, np.ndarray)
        codes = (self.codes if known else _octavo.copy_codes(self.codes, self.dtype)).view(NUMPY_TYPES[self.dtype])
        rows_last = codes.shape if layout == "bhsd" else (codes.shape[0], codes.shape[2], codes.shape[1])
        descale = self.descale if isinstance(self.descale, np.ndarray) else np.from_dlpack(self.descale)
        factor = _descale_per_row(descale, rows_last[1], rows_last[2])[..., None]
        values: NDArray[np.float32] = codes.astype(np.float32)
        values *= factor if layout == "bhsd" else factor.swapaxes(1, 2)
        return values


@dataclass(frozen=True, eq=False)
class QuantizedQkv:
    """Quantised Q, K and V of one attention call, as quantize() makes them. Pickles.

    score_shift  [b, hq, sq], float32: q . mean(K), what K smoothing took from each row of scores before
                 sm_scale; None where the recipe does not smooth
    head_dim     d of the inputs: sm_scale defaults to 1 / sqrt of it, not of the padded d of rotated codes
    recipe       what made the codes
    layout       the order of dimensions of the codes and of the output
    """

    q: QuantizedTensor
    k: QuantizedTensor
    v: QuantizedTensor
    score_shift: Any
    head_dim: int
    recipe: str
    layout: str = "bshd"

    def dequantize(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """q, k and v as the products see them, in float32: code * descale.

        Under a recipe that rotates, q and k are rotated (their product is not); under one that smooths, k lacks
        its mean, and q k^T + score_shift are the scores.
        """
        return self.q.dequantize(self.layout), self.k.dequantize(self.layout), self.v.dequantize(self.layout)


def quantize(
    q: Any,
    k: Any,
    v: Any,
    *,
    recipe: str = "default",
    key_lengths: Any = None,
    layout: str = "bshd",
    dtype: Any = None,
    engine: str = "auto",
    threads: int = 0,
) -> QuantizedQkv:
    """Rotates, smooths, scales and casts Q, K and V to 8 bits, as attention() does within.

    q            [b, sq, hq, d], k [b, sk, hkv, d], v [b, sk, hkv, dv] in float32, float16 or bfloat16, in host
                 memory, or PyTorch tensors on one CUDA device: then the codes are tensors there, made on
                 PyTorch's current stream; layout="bhsd": [b, h, s, d]
    recipe       "per_tensor", "per_head", "block", "fp8", "default" or "strict_causal", with "+rotate", "+smooth",
                 "+int8" (of Q and K), "+e5m2" (of K and V) behind it where wanted
    key_lengths  valid keys of each batch entry, integers or an int32 CUDA tensor [b]; keys past them become code 0
    dtype        the type of arrays that are uint16: "bf16" or "f16"; one, or one each for q, k and v
    engine       "auto", "emulate" or "sm90": the same bits

    The scale of a block is 448 / amax (57344 in E5M2); rotation is x D H / sqrt(n) with random signs D and a
    Hadamard matrix H (Shah et al. 2024, FlashAttention-3): docs/data_path.md, docs/format.md. The call releases
    the GIL. Raises ValueError, TypeError, NotImplementedError, RuntimeError as attention() does.
    """
    names = dtype_names("quantize", dtype)
    arrays = [exchangeable("quantize", n, x, t) for n, x, t in zip("qkv", (q, k, v), names, strict=True)]
    on_device = _all_on_torch_device(q, k, v)
    call = _octavo.Quantization(
        *(array for array, _ in arrays),
        dtypes=[stated for _, stated in arrays],
        layout=text("quantize", "layout", layout),
        recipe=text("quantize", "recipe", recipe),
        key_lengths=[] if is_torch_cuda(key_lengths) else lengths("quantize", key_lengths),
        engine=text("quantize", "engine", engine),
        threads=integer("quantize", "threads", threads),
        torch_cuda=on_device,
    )
    if on_device:
        found = TorchDevice(q).quantize(call, device_lengths("quantize", key_lengths, q.shape[0]))
        return _assembled(found, recipe, layout, "bhsd")
    if is_torch_cuda(key_lengths):
        raise ValueError("quantize: key_lengths are in device memory; must be where q is")
    return _assembled(call.run(), recipe, layout, "bshd")


def _all_on_torch_device(*arrays: Any) -> bool:
    """Whether operands are PyTorch's on CUDA devices; refuses a mixture with others."""
    on_device = [is_torch_cuda(x) for x in arrays]
    for name, found in zip("qkv", on_device, strict=True):
        if found != on_device[0]:
            raise ValueError(f"quantize: {name} is {'' if found else 'not '}on a CUDA device; must be where q is")
    return on_device[0]


def _assembled(found: tuple[Any, ...], recipe: str, layout: str, codes_layout: str) -> QuantizedQkv:
    *operands, score_shift, head_dim = found
    if layout != codes_layout:
        operands = [(codes.swapaxes(1, 2), *rest) for codes, *rest in operands]
    q8, k8, v8 = (QuantizedTensor(_signed(codes, dtype), descale, dtype) for codes, descale, dtype in operands)
    return QuantizedQkv(q8, k8, v8, score_shift, head_dim, recipe, layout)


def _signed(codes: Any, dtype: str) -> Any:
    """Bytes of integers as such; of FP8 they stay bytes, for which numpy has no name."""
    return codes.view(np.int8) if dtype == "i8" and isinstance(codes, np.ndarray) else codes


def _descale_per_row(descale: NDArray[Any], heads: int, rows: int) -> NDArray[Any]:
    """Descales of any shape of docs/format.md as [b or 1, h or 1, s or 1]."""
    if descale.ndim < 3:
        descale = descale.reshape((1,) * (2 - descale.ndim) + descale.shape + (1,))
    if descale.shape[1] not in (1, heads):  # Q's, one a KV head
        descale = np.repeat(descale, heads // descale.shape[1], axis=1)
    entries = descale.shape[2]
    if entries in (1, rows):
        return descale
    block = 64 if entries == -(-rows // 64) else 128
    return np.repeat(descale, block, axis=2)[..., :rows]
