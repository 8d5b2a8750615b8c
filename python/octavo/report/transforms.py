# SPDX-License-Identifier: Apache-2.0
"""Rotation and K smoothing in numpy, as docs/format.md defines them: the values that are cast.

FP32 additions in another order than the library's: equal but for the last bits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SEED = 0x0C7A40
_HEAD_DIMS = (64, 96, 128, 192, 256)
_RUNS, _RUN_KEYS = 32, 4  # of keys whose mean is taken

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Steps:
    """What a recipe does to Q and K before the cast."""

    rotate: bool
    smooth: bool


def steps_of(recipe: str) -> Steps:
    base, *options = recipe.split("+")
    rotates = base in ("fp8", "default", "strict_causal") or "rotate" in options
    return Steps(rotates, base in ("fp8", "default") or "smooth" in options)


def signs(channels: int) -> Floats:
    """+1 or -1 a channel: bits of SplitMix64."""
    words, state = [], _SEED
    for _ in range(4):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        words.append(z ^ (z >> 31))
    return np.array([-1.0 if words[c // 64] >> c % 64 & 1 else 1.0 for c in range(channels)], np.float32)


def rotate(x: NDArray[Any]) -> Floats:
    """x D H / sqrt(n) along the last dimension, padded with zeros to a head dim of the kernels."""
    d = x.shape[-1]
    padded = next(n for n in _HEAD_DIMS if n >= d)
    n = padded & -padded
    wide = np.zeros((*x.shape[:-1], padded), np.float32)
    wide[..., :d] = x
    wide *= signs(padded)
    distance = 1
    while distance < n:
        pairs = wide.reshape(*x.shape[:-1], padded // (2 * distance), 2, distance)
        a, b = pairs[..., 0, :].copy(), pairs[..., 1, :].copy()
        pairs[..., 0, :], pairs[..., 1, :] = a + b, a - b
        distance *= 2
    wide *= np.float32(n**-0.5)
    return wide


def smooth(k: NDArray[Any], key_lengths: tuple[int, ...] | None) -> Floats:
    """K minus the mean of a sample of keys, per batch entry and head."""
    result = k.astype(np.float32)
    for i, keys in enumerate(result):
        n = k.shape[1] if key_lengths is None else key_lengths[i]
        if n:
            keys -= keys[_sampled(n)].mean(axis=0, dtype=np.float32)
    return result


def prepared(operand: str, x: NDArray[Any], steps: Steps, key_lengths: tuple[int, ...] | None) -> Floats:
    """The values of "q", "k" or "v" that a recipe with these steps casts."""
    values = smooth(x, key_lengths) if operand == "k" and steps.smooth else x.astype(np.float32)
    return rotate(values) if operand in "qk" and steps.rotate else values


def _sampled(keys: int) -> NDArray[np.intp]:
    """At most 32 runs of 4 keys at even distances."""
    units = -(-keys // _RUN_KEYS)
    distance = max(-(-units // _RUNS), 1) * _RUN_KEYS
    every = np.arange(keys)
    return every[every % distance < _RUN_KEYS]
