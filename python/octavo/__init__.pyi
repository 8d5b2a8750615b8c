# SPDX-License-Identifier: Apache-2.0
# Types of the public names whose results depend on their arguments; the others are typed in place.
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, overload

from ._attention import why_unsupported as why_unsupported
from ._quantized import QuantizedQkv as QuantizedQkv
from ._quantized import QuantizedTensor as QuantizedTensor
from ._quantized import quantize as quantize

__version__: str
__all__ = [
    "QuantizedQkv",
    "QuantizedTensor",
    "attention",
    "attention_quantized",
    "info",
    "quantize",
    "why_unsupported",
]

class _SupportsDLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

_Array: TypeAlias = _SupportsDLPack | memoryview
_Lengths: TypeAlias = Any  # integers: a list, a numpy array, a tensor in host memory
_DType: TypeAlias = Any  # "bf16", numpy.float16, ml_dtypes.bfloat16, torch.bfloat16, ..
_Window: TypeAlias = tuple[int | None, int | None] | None
_Layout: TypeAlias = Literal["bshd", "bhsd"]
_Precision: TypeAlias = Literal["fp8", "bf16", "fp16", "auto"]
_Softmax: TypeAlias = Literal["exact", "direct"]
_Accumulator: TypeAlias = Literal["hopper", "fp32"]

class _Info(TypedDict):
    version: str
    cuda: bool
    device: str
    engines: list[str]
    recipes: list[str]
    simd: list[str]

@overload
def attention(
    q: _Array | QuantizedTensor,
    k: _Array | QuantizedTensor,
    v: _Array | QuantizedTensor,
    *,
    causal: bool = False,
    window: _Window = None,
    softcap: float = 0.0,
    sm_scale: float | None = None,
    precision: _Precision = "fp8",
    recipe: str | None = None,
    softmax: _Softmax = "exact",
    accumulator: _Accumulator = "hopper",
    promote_every: int = 1,
    num_splits: int = 1,
    key_lengths: _Lengths = None,
    out: Any = None,
    out_dtype: _DType = None,
    return_lse: Literal[False] = False,
    layout: _Layout = "bshd",
    dtype: _DType = None,
    engine: str = "auto",
    threads: int = 0,
    stream: Any = None,
) -> Any: ...
@overload
def attention(
    q: _Array | QuantizedTensor,
    k: _Array | QuantizedTensor,
    v: _Array | QuantizedTensor,
    *,
    causal: bool = False,
    window: _Window = None,
    softcap: float = 0.0,
    sm_scale: float | None = None,
    precision: _Precision = "fp8",
    recipe: str | None = None,
    softmax: _Softmax = "exact",
    accumulator: _Accumulator = "hopper",
    promote_every: int = 1,
    num_splits: int = 1,
    key_lengths: _Lengths = None,
    out: Any = None,
    out_dtype: _DType = None,
    return_lse: Literal[True],
    layout: _Layout = "bshd",
    dtype: _DType = None,
    engine: str = "auto",
    threads: int = 0,
    stream: Any = None,
) -> tuple[Any, Any]: ...
@overload
def attention_quantized(
    qkv: QuantizedQkv,
    *,
    causal: bool = False,
    window: _Window = None,
    softcap: float = 0.0,
    sm_scale: float | None = None,
    softmax: _Softmax = "exact",
    accumulator: _Accumulator = "hopper",
    promote_every: int = 1,
    num_splits: int = 1,
    key_lengths: _Lengths = None,
    out: Any = None,
    out_dtype: _DType = None,
    return_lse: Literal[False] = False,
    engine: str = "auto",
    threads: int = 0,
    stream: Any = None,
) -> Any: ...
@overload
def attention_quantized(
    qkv: QuantizedQkv,
    *,
    causal: bool = False,
    window: _Window = None,
    softcap: float = 0.0,
    sm_scale: float | None = None,
    softmax: _Softmax = "exact",
    accumulator: _Accumulator = "hopper",
    promote_every: int = 1,
    num_splits: int = 1,
    key_lengths: _Lengths = None,
    out: Any = None,
    out_dtype: _DType = None,
    return_lse: Literal[True],
    engine: str = "auto",
    threads: int = 0,
    stream: Any = None,
) -> tuple[Any, Any]: ...
def info() -> _Info: ...
