# SPDX-License-Identifier: Apache-2.0
"""Q, K and V of a safetensors file, and the call that its metadata describe (docs/format.md)."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

_TYPES: dict[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
_METADATA = "__metadata__"


@dataclass(frozen=True)
class Group:
    """Operands of one attention call, [b, s, h, d]."""

    name: str
    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]


@dataclass(frozen=True)
class Call:
    """What is computed on every group of a file."""

    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    softcap: float = 0.0
    sm_scale: float | None = None
    key_lengths: tuple[int, ...] | None = None

    def keywords(self) -> dict[str, Any]:
        """Of octavo.attention()."""
        lengths = None if self.key_lengths is None else list(self.key_lengths)
        return {
            "causal": self.causal,
            "window": self.window,
            "softcap": self.softcap,
            "sm_scale": self.sm_scale,
            "key_lengths": lengths,
        }

    def describe(self) -> str:
        text = "causal" if self.causal else "no mask"
        if self.window is not None:
            text = "window " + ", ".join("all" if side is None else str(side) for side in self.window)
        if self.softcap:
            text += f", softcap {self.softcap:g}"
        if self.sm_scale is not None:
            text += f", scale {self.sm_scale:g}"
        if self.key_lengths is not None:
            text += f", key lengths {', '.join(map(str, self.key_lengths))}"
        return text


@dataclass(frozen=True)
class QkvFile:
    path: Path
    groups: tuple[Group, ...]
    call: Call


def refuse(name: str, value: object, rule: str) -> NoReturn:
    raise ValueError(f"octavo.report: {name} is {value!r}; must be {rule}")


def read(path: Path, settings: Mapping[str, str] | None = None, prefix: str | None = None) -> QkvFile:
    """All groups of a file, or the one named by `prefix`; `settings` take the place of its metadata."""
    with path.open("rb") as file:
        header, start, size = _header(path, file.read(8), file)
        metadata = dict(settings) if settings is not None else metadata_of(header)
        layout = metadata.get("octavo.layout", "bshd")
        if layout not in ("bshd", "bhsd"):
            refuse("metadata octavo.layout", layout, "bshd or bhsd")
        call = parse_call(metadata)
        groups = []
        for found in _chosen(path, _prefixes(header), prefix):
            operands = [_operand(path, file, header, found + n, start, size, layout) for n in "qkv"]
            groups.append(Group(found.rstrip("._/") or "all", *operands))
    return QkvFile(path, tuple(groups), call)


def read_metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        return metadata_of(_header(path, file.read(8), file)[0])


def metadata_of(header: Mapping[str, Any]) -> dict[str, str]:
    found = header.get(_METADATA, {})
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def parse_call(metadata: Mapping[str, str]) -> Call:
    """The call of metadata like those that `octavo gen` writes."""
    causal = metadata.get("causal", "false")
    if causal not in ("true", "false"):
        refuse("metadata causal", causal, "'true' or 'false'")
    window = metadata.get("octavo.window")
    if window is not None and causal == "true":
        refuse("metadata causal", causal, f"'false' beside octavo.window ({window!r}): a file has one mask")
    softcap, scale = metadata.get("octavo.softcap"), metadata.get("octavo.sm_scale")
    lengths = metadata.get("octavo.key_lengths")
    return Call(
        causal == "true",
        None if window is None else _window(window),
        0.0 if softcap is None else _positive("octavo.softcap", softcap),
        None if scale is None else _positive("octavo.sm_scale", scale),
        None if lengths is None else tuple(_integer("octavo.key_lengths", x) for x in lengths.split(",")),
    )


def _window(text: str) -> tuple[int | None, int | None]:
    sides = [None if side == "all" else _integer("octavo.window", side) for side in text.split(",")]
    if len(sides) != 2:
        refuse("metadata octavo.window", text, "L,R: keys back and ahead, 'all' for no limit")
    return sides[0], sides[1]


def _positive(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        refuse(f"metadata {key}", text, "a positive number")
    return number


def _integer(key: str, text: str) -> int:
    if not text.strip().isdecimal():
        refuse(f"metadata {key}", text, "an integer of at least 0" if "," not in text else "integers")
    return int(text)


def _header(path: Path, first: bytes, file: Any) -> tuple[dict[str, Any], int, int]:
    """The header, where the data begin, and their size."""
    size = path.stat().st_size
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > size - 8:
        refuse("IN", str(path), "a safetensors file: 8 bytes that give the length of a header, and the header")
    try:
        header = json.loads(file.read(length))
    except ValueError:
        header = None
    if not isinstance(header, dict):
        refuse("IN", str(path), "a safetensors file, whose header is a JSON object")
    return header, 8 + length, size - 8 - length


def _prefixes(header: Mapping[str, Any]) -> list[str]:
    names = [name[:-1] for name in header if name.endswith("q") and name != _METADATA]
    return sorted(name for name in names if name + "k" in header and name + "v" in header)


def _chosen(path: Path, prefixes: list[str], asked: str | None) -> list[str]:
    if not prefixes:
        refuse("IN", str(path), "a file with q, k and v, or with PREFIXq, PREFIXk and PREFIXv (layer00.q, ..)")
    if asked is None:
        return prefixes
    if asked not in prefixes:
        refuse("--prefix", asked, f"one of those in the file: {', '.join(map(repr, prefixes))}")
    return [asked]


def _operand(
    path: Path, file: Any, header: Mapping[str, Any], name: str, start: int, size: int, layout: str
) -> NDArray[Any]:
    """One tensor as [b, s, h, d]."""
    dtype, shape, begin = _entry(path, name, header[name], size)
    file.seek(start + begin)
    count = math.prod(shape)
    values = np.frombuffer(file.read(count * dtype.itemsize), dtype).reshape(shape)
    if values.ndim == 3:
        values = values[None]
    if not np.isfinite(values.astype(np.float32)).all():
        raise ValueError(f"octavo.report: tensor {name!r} of {path} holds NaNs or infinities; must be finite")
    return values.swapaxes(1, 2) if layout == "bhsd" else values


def _entry(path: Path, name: str, entry: Any, size: int) -> tuple[np.dtype[Any], list[int], int]:
    """Type, shape and offset of a tensor, checked against the size of the data."""
    try:
        stated, shape, (begin, end) = entry["dtype"], list(entry["shape"]), entry["data_offsets"]
        whole = all(isinstance(x, int) and x >= 0 for x in [*shape, begin, end])
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        refuse(f"the entry of tensor {name!r} in {path}", entry, "dtype, shape and data_offsets")
    if stated not in _TYPES:
        refuse(f"the type of tensor {name!r} in {path}", stated, f"one of {', '.join(_TYPES)}")
    if len(shape) not in (3, 4) or 0 in shape:
        refuse(f"the shape of tensor {name!r} in {path}", shape, "[b, s, h, d] or [s, h, d] without zeros")
    dtype = np.dtype(_TYPES[stated])
    if end - begin != math.prod(shape) * dtype.itemsize or end > size:
        refuse(
            f"data_offsets of tensor {name!r} in {path}",
            [begin, end],
            f"{math.prod(shape) * dtype.itemsize} bytes apart, as its shape says, and within the file's {size}",
        )
    return dtype, shape, begin
