# SPDX-License-Identifier: Apache-2.0
"""Perplexities and their paired differences."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 64  # neighbouring tokens that are drawn together: their losses are correlated
DRAWS = 4000

Losses = NDArray[np.float32]  # [windows, context - 1], nats


@dataclass(frozen=True)
class Row:
    """One variant. delta_percent: of the perplexity against the base's; low and high bound 95 % of bootstrap draws."""

    variant: str
    tokens: int
    perplexity: float
    delta_percent: float
    low_percent: float
    high_percent: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def perplexity(losses: Losses) -> float:
    return float(np.exp(losses.mean(dtype=np.float64)))


def compare(variant: str, losses: Losses, base: Losses, seed: int = 0) -> Row:
    """Perplexity of `losses`, and its difference from `base`, token by token, in percent."""
    difference = (losses.astype(np.float64) - base).reshape(-1)
    means = _bootstrap_means(difference, np.random.default_rng(seed))
    low, high = np.percentile(means, [2.5, 97.5])
    return Row(
        variant,
        difference.size,
        perplexity(losses),
        100 * float(np.expm1(difference.mean())),
        100 * float(np.expm1(low)),
        100 * float(np.expm1(high)),
    )


def _bootstrap_means(x: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Means of draws with replacement of whole blocks of neighbours."""
    parts = np.array_split(x, max(x.size // BLOCK, 1))
    sums, sizes = np.array([part.sum() for part in parts]), np.array([part.size for part in parts])
    drawn = random.integers(len(parts), size=(DRAWS, len(parts)))
    means: NDArray[np.float64] = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    return means
