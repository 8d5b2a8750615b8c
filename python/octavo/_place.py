# SPDX-License-Identifier: Apache-2.0
"""Where a call's arrays are: what allocates its output there, and how the call runs."""

import functools
import math
import sys
from typing import Any, Protocol

import numpy as np

from . import _octavo
from ._arguments import NUMPY_TYPES, integer

_CUDA = (2, 13)  # DLPack's types of memory: a device's, managed


class Place(Protocol):
    """Host memory, or that of a CUDA device."""

    def empty(self, shape: tuple[int, ...], name: str) -> Any:
        """A new array of the library's type `name`."""

    def run(self, call: _octavo.Call, stream: Any, key_lengths: Any, arrays: tuple[Any, ...]) -> None:
        """Runs a call whose tensors are set: those of `arrays`. key_lengths: those in device memory, or None."""


class Host:
    def empty(self, shape: tuple[int, ...], name: str) -> Any:
        return np.empty(shape, NUMPY_TYPES[name])

    def run(self, call: _octavo.Call, stream: Any, key_lengths: Any, arrays: tuple[Any, ...]) -> None:
        if stream is not None:
            raise ValueError("attention_forward: stream is given; must be None for arrays in host memory")
        if key_lengths is not None:
            raise ValueError("attention_forward: key_lengths are in device memory; must be where q is")
        call.run()


class TorchDevice:
    """PyTorch's tensors: its allocator serves the workspace, its current stream the call."""

    def __init__(self, tensor: Any) -> None:
        self._torch = sys.modules["torch"]
        self._device = tensor.device

    def empty(self, shape: tuple[int, ...], name: str) -> Any:
        return self._torch.empty(shape, dtype=getattr(self._torch, _TORCH_TYPES[name]), device=self._device)

    def quantize(self, call: _octavo.Quantization, key_lengths: Any) -> tuple[Any, ...]:
        """(q, k, v, score_shift, head_dim) with a tuple (codes [b, h, s, d], descale, type's name) an operand.

        Nothing lies in the workspace any more. Rows of codes stay as far apart as the kernels' are: 16-byte strides.
        """
        torch = self._torch
        workspace, arguments = self._launch("quantize", call, key_lengths)
        q, k, v, shift, head_dim = call.run_on_device(*arguments)
        operands = [self._operand(workspace, x, transposed) for x, transposed in ((q, False), (k, False), (v, True))]
        if shift < 0:
            return (*operands, None, head_dim)
        rows = operands[0][0].shape[:3]
        return (*operands, _floats(torch, workspace, shift, rows).clone(), head_dim)

    def _operand(self, workspace: Any, place: Any, transposed: bool) -> tuple[Any, Any, str]:
        torch = self._torch
        first, shape, rows, channels, descale_first, descale_shape, name = place
        codes = workspace[first : first + math.prod(shape)].view(shape)
        if transposed:
            codes = codes.index_select(3, position_of_key(torch.arange(rows, device=self._device))).transpose(2, 3)
            codes = codes.contiguous()
        else:
            codes = codes[:, :, :rows].clone()
        codes = codes[..., :channels].view(getattr(torch, _TORCH_CODES[name]))
        descale = _floats(torch, workspace, descale_first, descale_shape)
        return codes, descale[..., :rows].clone() if len(descale_shape) == 3 else descale.clone(), name

    def _launch(self, function: str, call: Any, key_lengths: Any) -> tuple[Any, tuple[int, int, int, int]]:
        """A workspace for the call, and the arguments of its run_on_device() on the current stream."""
        torch, device = self._torch, self._device
        if key_lengths is not None and key_lengths.device != device:
            raise ValueError(f"{function}: key_lengths are on {key_lengths.device}; must be on {device} like q")
        bytes_needed = call.workspace_bytes()
        workspace = torch.empty(max(bytes_needed, 1), dtype=torch.uint8, device=device)
        queue = torch._C._cuda_getCurrentRawStream(device.index)  # as torch's own generated code asks
        lengths = 0 if key_lengths is None else key_lengths.data_ptr()
        return workspace, (queue, workspace.data_ptr(), bytes_needed, lengths)

    def run(self, call: _octavo.Call, stream: Any, key_lengths: Any, arrays: tuple[Any, ...]) -> None:
        torch, device = self._torch, self._device
        workspace, (queue, *others) = self._launch("attention_forward", call, key_lengths)
        if stream is not None and _stream_address(stream) != queue:
            queue = _stream_address(stream)
            other = torch.cuda.ExternalStream(queue, device) if queue else torch.cuda.default_stream(device)
            # Memory comes from the current stream's pool, where work on it may be under way still, and must not go
            # back there before that other stream is done with it.
            other.wait_stream(torch.cuda.current_stream(device))
            for tensor in (workspace, key_lengths, *_parts(arrays)):
                if is_torch_cuda(tensor):
                    tensor.record_stream(other)
        call.run_on_device(queue, *others)


class CudaDevice:
    """Arrays of other frameworks, through DLPack. The default stream is CUDA's legacy default one."""

    def __init__(self, array: Any, index: int) -> None:
        self._framework = type(array).__module__.partition(".")[0]
        self._index = index

    def empty(self, shape: tuple[int, ...], name: str) -> Any:
        array = _octavo.empty_on_device(list(shape), name, self._index)
        if self._framework == "cupy" and name != "bf16":  # which it lacks
            return sys.modules["cupy"].from_dlpack(array)
        return array

    def run(self, call: _octavo.Call, stream: Any, key_lengths: Any, arrays: tuple[Any, ...]) -> None:
        if key_lengths is not None:
            raise ValueError("attention_forward: key_lengths are in device memory; must be a PyTorch tensor or a list")
        if stream is None and self._framework == "cupy":
            stream = sys.modules["cupy"].cuda.get_current_stream()
        call.run_on_device(0 if stream is None else _stream_address(stream), 0, 0, 0)


_TORCH_TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_TORCH_CODES = {"f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2", "i8": "int8"}
_HOST = Host()


def position_of_key(key: Any) -> Any:
    """Where keys (an array of integers) stand in a row of the kernels' V^T (docs/format.md)."""
    return key // 16 * 16 + key // 2 % 4 * 4 + key % 2 + key // 8 % 2 * 2


def _floats(torch: Any, workspace: Any, first: int, shape: Any) -> Any:
    return workspace[first : first + 4 * math.prod(shape)].view(torch.float32).view(tuple(shape))


def _parts(arrays: tuple[Any, ...]) -> list[Any]:
    """Arrays, and of a QuantizedTensor its codes and descales."""
    return [part for x in arrays for part in ((x.codes, x.descale) if hasattr(x, "codes") else (x,))]


def is_torch_cuda(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor) and bool(array.is_cuda)


def exchange_on_device(q: Any, k: Any, v: Any, out: Any) -> bool:
    """Whether these are PyTorch's tensors, q on a CUDA device, and that PyTorch has DLPack's functions in C (2.10 on)."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(q, torch.Tensor) or not q.is_cuda:
        return False
    others_fit = isinstance(k, torch.Tensor) and isinstance(v, torch.Tensor) and isinstance(out, torch.Tensor | None)
    kind: Any = type(q)
    return others_fit and _exchanges(kind)


@functools.cache
def _exchanges(kind: Any) -> bool:
    return _octavo.exchanges(kind)


def place_of(array: Any) -> Place:
    if isinstance(array, np.ndarray):
        return _HOST
    if is_torch_cuda(array):
        return TorchDevice(array)
    device = getattr(array, "__dlpack_device__", None)
    if device is None:
        return _HOST
    kind, index = device()
    return CudaDevice(array, index) if kind in _CUDA else _HOST


def device_lengths(function: str, key_lengths: Any, batch: int) -> Any:
    """key_lengths where they are a CUDA tensor that the kernels can read, else None."""
    if not is_torch_cuda(key_lengths):
        return None
    if str(key_lengths.dtype) != "torch.int32" or tuple(key_lengths.shape) != (batch,):
        raise ValueError(
            f"{function}: key_lengths is {key_lengths.dtype} {list(key_lengths.shape)}; must be int32 [{batch}] "
            "where it is in device memory"
        )
    return key_lengths.contiguous()


def _stream_address(stream: Any) -> int:
    """Of an integer, or of a stream object of PyTorch or CuPy."""
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    return integer("attention_forward", "stream", stream, 64)
