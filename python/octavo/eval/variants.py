# SPDX-License-Identifier: Apache-2.0
"""Names of ways to compute attention.

    bf16                                          16-bit attention: what the others are held against
    precision=bf16                                octavo.attention() in BF16, nothing quantised
    RECIPE [softmax=direct] [acc=fp32] [promote=N|none]
                                                  octavo.attention() of that recipe
    imitate [only=q|k|qk|p|v] [qk=e4m3|int8|none] [pv=e4m3|none] [rotate=0] [smooth=0] [k=token] [q=block]
                                                  codes imitated in FP32, stage by stage, to see what each costs
                                                  (needs torch)
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import octavo

_STAGES = {"q", "k", "p", "v"}


@dataclass(frozen=True)
class Octavo:
    """octavo.attention() with these arguments."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Imitation:
    """Operands and weights rounded one by one; all else in FP32."""

    name: str
    rounded: frozenset[str] = frozenset(_STAGES)
    qk: str = "e4m3"
    pv: str = "e4m3"
    rotate: bool = True
    smooth: bool = True
    q_scales: str = "token"
    k_scales: str = "block"


@dataclass(frozen=True)
class SixteenBit:
    name: str = "bf16"


Variant = Octavo | Imitation | SixteenBit


def parse(name: str) -> Variant:
    """The variant of that name. Raises ValueError naming the word and what it may be."""
    first, *words = name.split() or [""]
    pairs = [_pair(name, word) for word in words]
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ValueError(f"octavo-eval: variant {name!r} has an option twice; must have each once")
    if first == "bf16":
        _nothing_left(name, options)
        return SixteenBit()
    if first == "precision=bf16":  # the type of the operands that the models have
        _nothing_left(name, options)
        return Octavo(name, {"precision": "bf16"})
    if first == "imitate":
        return _imitation(name, options)
    known = octavo.info()["recipes"]
    if first.split("+")[0] not in known:
        raise ValueError(
            f"octavo-eval: variant {name!r} begins with {first!r}; must be bf16, precision=bf16, imitate or one of {known}"
        )
    promote = options.pop("promote", "1")
    if promote != "none" and not promote.isdecimal():
        raise ValueError(f"octavo-eval: variant {name!r} has promote={promote}; must be none or a number of key tiles")
    arguments: dict[str, Any] = {
        "recipe": first,
        "softmax": _one_of(name, options, "softmax", ("exact", "direct")),
        "accumulator": _one_of(name, options, "acc", ("hopper", "fp32")),
        "promote_every": 0 if promote == "none" else int(promote),
    }
    _nothing_left(name, options)
    _try(name, arguments)
    return Octavo(name, arguments)


def _try(name: str, arguments: dict[str, Any]) -> None:
    """Raises ValueError where the library refuses the combination, before any model has run."""
    x = np.zeros((1, 1, 1, 8), np.float32)
    try:
        octavo.attention(x, x, x, engine="emulate", **arguments)
    except (ValueError, NotImplementedError) as error:
        raise ValueError(f"octavo-eval: variant {name!r}: {error}") from None


def _imitation(name: str, options: dict[str, str]) -> Imitation:
    only = options.pop("only", "qkpv")
    if not set(only) <= _STAGES:
        raise ValueError(f"octavo-eval: variant {name!r} has only={only}; must be letters of q, k, p and v")
    qk = _one_of(name, options, "qk", ("e4m3", "int8", "none"))
    pv = _one_of(name, options, "pv", ("e4m3", "none"))
    rounded = set(only) - ({"q", "k"} if qk == "none" else set()) - ({"p", "v"} if pv == "none" else set())
    variant = Imitation(
        name,
        frozenset(rounded),
        qk,
        pv,
        _one_of(name, options, "rotate", ("1", "0")) == "1",
        _one_of(name, options, "smooth", ("1", "0")) == "1",
        _one_of(name, options, "q", ("token", "block")),
        _one_of(name, options, "k", ("block", "token")),
    )
    _nothing_left(name, options)
    return variant


def _pair(name: str, word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"octavo-eval: variant {name!r} has {word!r}; must be KEY=VALUE")
    return key, value


def _one_of(name: str, options: dict[str, str], key: str, values: tuple[str, ...]) -> str:
    value = options.pop(key, values[0])
    if value not in values:
        raise ValueError(f"octavo-eval: variant {name!r} has {key}={value}; must be one of {', '.join(values)}")
    return value


def _nothing_left(name: str, options: dict[str, str]) -> None:
    if options:
        raise ValueError(f"octavo-eval: variant {name!r} has {', '.join(options)}, which {name.split()[0]} does not know")
