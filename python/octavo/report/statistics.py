# SPDX-License-Identifier: Apache-2.0
"""What the report shows, in numbers."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import octavo

from .reader import Call, Group, QkvFile
from .transforms import Steps, prepared, steps_of

RECIPES = (
    "per_tensor",
    "per_head",
    "block",
    "block+rotate",
    "block+smooth",
    "block+rotate+smooth",
    "fp8",
    "default",
    "strict_causal",
)
CONTEXT_RECIPES = ("default", "block", "per_tensor")
DEPTH = 22  # octaves below a tensor's largest magnitude that are counted
_FORMATS: dict[str, tuple[Any, float]] = {
    "f8_e4m3": (ml_dtypes.float8_e4m3fn, 448.0),
    "f8_e5m2": (ml_dtypes.float8_e5m2, 57344.0),
    "i8": (np.int8, 127.0),
}

Variant = tuple[str, str]  # recipe, softmax
Say = Callable[[str], None]


@dataclass(frozen=True)
class Where:
    """Arguments of octavo.attention() that say where a call runs."""

    engine: str = "auto"
    threads: int = 0

    def reference(self) -> "Where":
        return Where("reference", self.threads)


@dataclass(frozen=True)
class Error:
    """Relative L2 errors of one output against the double-precision one: of all, and per query head."""

    total: float
    heads: NDArray[np.float64]


@dataclass(frozen=True)
class Distribution:
    """Shares of the non-zero values of a tensor, in half octaves below its largest magnitude."""

    operand: str
    stage: str
    largest: float
    median: float  # octaves below the largest
    shares: NDArray[np.float64]


@dataclass(frozen=True)
class Codes:
    """Codes of one operand, of all groups together."""

    operand: str
    format: str
    exponents: NDArray[np.int64]  # those that occur in the format
    shares: NDArray[np.float64]  # of all codes, by exponent; the rest is 0
    flushed: float  # share of the codes that are 0 though the value was not
    largest: float  # share of the codes at the format's largest magnitude


@dataclass
class Statistics:
    recipe: str
    where: Where
    recipes: tuple[str, ...]
    groups: list[str] = field(default_factory=list)
    errors: dict[Variant, list[Error]] = field(default_factory=dict)  # one a group
    shown: list[str] = field(default_factory=list)  # groups that have drawings of their own
    distributions: dict[str, list[Distribution]] = field(default_factory=dict)
    codes: dict[str, list[Codes]] = field(default_factory=dict)  # by recipe
    lengths: list[int] = field(default_factory=list)
    context: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # group, recipe: one a length

    def error(self, recipe: str, group: int) -> float:
        return self.errors[recipe, "exact"][group].total

    def mean_error(self, recipe: str, softmax: str = "exact") -> float:
        return float(np.mean([e.total for e in self.errors[recipe, softmax]]))


def relative_l2(got: NDArray[Any], want: NDArray[Any], axis: tuple[int, ...] | None = None) -> Any:
    """|got - want| / |want|; 0 where both are 0."""
    wide = want.astype(np.float64)
    difference, size = (np.square(x).sum(axis=axis) for x in (got - wide, wide))
    return np.sqrt(difference / np.where(size > 0, size, 1))


def attend(
    group: Group, call: Call, where: Where, recipe: str | None = None, softmax: str = "exact"
) -> NDArray[Any]:
    options: dict[str, Any] = {"recipe": recipe, "softmax": softmax, **asdict(where), **call.keywords()}
    found: NDArray[Any] = octavo.attention(group.q, group.k, group.v, out_dtype="f32", **options)
    return found


def collect(
    file: QkvFile, recipe: str, where: Where, variants: Sequence[Variant] = (), say: Say = lambda _: None
) -> Statistics:
    """All figures of a file. `variants`: recipes and softmax paths whose errors are wanted besides."""
    result = Statistics(recipe, where, RECIPES if recipe in RECIPES else (*RECIPES, recipe))
    wanted = list(dict.fromkeys([*((r, "exact") for r in result.recipes), *variants]))
    for number, group in enumerate(file.groups, 1):
        say(f"{group.name} ({number} of {len(file.groups)}): error of {len(wanted)} variants")
        result.groups.append(group.name)
        want = attend(group, file.call, where.reference())
        for variant in wanted:
            result.errors.setdefault(variant, []).append(_error(attend(group, file.call, where, *variant), want))
    shown = [file.groups[i] for i in _first_middle_last(len(file.groups))]
    result.shown = [group.name for group in shown]
    for group in shown:
        say(f"{group.name}: distributions")
        result.distributions[group.name] = _distributions(group, file.call)
    for name in dict.fromkeys([recipe, "per_tensor"]):
        say(f"codes of {name}")
        result.codes[name] = [_codes(operand, file, name) for operand in "qkv"]
    result.lengths = _lengths(file)
    for group in shown if result.lengths else []:
        say(f"{group.name}: error of its first {result.lengths[0]} to {result.lengths[-1]} tokens")
        result.context[group.name] = _context(group, file.call, result)
    return result


def _error(out: NDArray[Any], want: NDArray[Any]) -> Error:
    return Error(float(relative_l2(out, want)), relative_l2(out, want, axis=(0, 1, 3)))


def _first_middle_last(count: int) -> list[int]:
    return sorted({0, count // 2, count - 1})


def _valid(operand: str, x: NDArray[Any], call: Call) -> NDArray[Any]:
    """The rows that a call reads: [n, h, d]."""
    if operand == "q" or call.key_lengths is None:
        return x.reshape(-1, *x.shape[2:])
    return np.concatenate([rows[:n] for rows, n in zip(x, call.key_lengths, strict=True)])


def _distributions(group: Group, call: Call) -> list[Distribution]:
    smoothed, rotated = ("smoothed", Steps(False, True)), ("smoothed, rotated", Steps(True, True))
    plan = {
        "q": [("rotated", Steps(True, False))],
        "k": [smoothed, rotated],
        "v": [],
    }
    found = []
    for operand, stages in plan.items():
        for stage, steps in [("as in the file", Steps(False, False)), *stages]:
            values = prepared(operand, getattr(group, operand), steps, call.key_lengths)
            found.append(_distribution(operand, stage, _valid(operand, values, call)))
    return found


def _distribution(operand: str, stage: str, values: NDArray[Any]) -> Distribution:
    magnitudes = np.abs(values[values != 0]).astype(np.float64)
    if not magnitudes.size:
        return Distribution(operand, stage, 0.0, 0.0, np.zeros(2 * DEPTH))
    largest = float(magnitudes.max())
    octaves = np.log2(largest / magnitudes)
    counts, _ = np.histogram(octaves, bins=2 * DEPTH, range=(0, DEPTH))
    return Distribution(operand, stage, largest, float(np.median(octaves)), counts / magnitudes.size)


def _codes(operand: str, file: QkvFile, recipe: str) -> Codes:
    """Codes as quantize() makes them, beside the values that it casts."""
    counts: dict[int, int] = {}
    total = flushed = at_largest = 0
    kind = "f8_e4m3"
    for group in file.groups:
        values, magnitudes, kind = _cast(operand, group, file.call, recipe)
        total += magnitudes.size
        flushed += int(np.count_nonzero((magnitudes == 0) & (values != 0)))
        at_largest += int(np.count_nonzero(magnitudes == _FORMATS[kind][1]))
        exponents = np.frexp(magnitudes[magnitudes > 0])[1] - 1
        for exponent, count in zip(*np.unique(exponents, return_counts=True), strict=True):
            counts[int(exponent)] = counts.get(int(exponent), 0) + int(count)
    occurring = _exponents(kind)
    shares = np.array([counts.get(int(e), 0) for e in occurring]) / total
    return Codes(operand, kind, occurring, shares, flushed / total, at_largest / total)


def _cast(operand: str, group: Group, call: Call, recipe: str) -> tuple[NDArray[Any], NDArray[np.float32], str]:
    """The values of an operand, the magnitudes of their codes (without descale), and the codes' format."""
    lengths = call.keywords()["key_lengths"]
    quantized = getattr(octavo.quantize(group.q, group.k, group.v, recipe=recipe, key_lengths=lengths), operand)
    values = prepared(operand, getattr(group, operand), steps_of(recipe), call.key_lengths)
    codes = np.asarray(quantized.codes).view(_FORMATS[quantized.dtype][0]).astype(np.float32)
    return _valid(operand, values, call), np.abs(_valid(operand, codes, call)), quantized.dtype


def _exponents(kind: str) -> NDArray[np.int64]:
    smallest = np.finfo(np.float32).tiny  # of the positive patterns, all but NaN
    patterns = np.arange(1, 128, dtype=np.uint8).view(_FORMATS[kind][0]).astype(np.float32)
    finite = patterns[np.isfinite(patterns) & (patterns > smallest)]
    return np.unique(np.frexp(finite)[1] - 1).astype(np.int64)


def _lengths(file: QkvFile) -> list[int]:
    """64, 128, .. up to the tokens of the file; empty where Q and K have not the same number."""
    sizes = {x.shape[1] for group in file.groups for x in (group.q, group.k)}
    if len(sizes) != 1:
        return []
    tokens = sizes.pop()
    powers = [2**i for i in range(6, tokens.bit_length()) if 2**i < tokens]
    return [*powers, tokens]


def _context(group: Group, call: Call, result: Statistics) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for n in result.lengths:
        first = Group(group.name, group.q[:, :n], group.k[:, :n], group.v[:, :n])
        lengths = None if call.key_lengths is None else tuple(min(n, keys) for keys in call.key_lengths)
        short = Call(call.causal, call.window, call.softcap, call.sm_scale, lengths)
        want = attend(first, short, result.where.reference())
        for recipe in dict.fromkeys([*CONTEXT_RECIPES, result.recipe]):
            error = relative_l2(attend(first, short, result.where, recipe), want)
            found.setdefault(recipe, []).append(float(error))
    return found
