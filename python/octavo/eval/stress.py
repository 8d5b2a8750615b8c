# SPDX-License-Identifier: Apache-2.0
"""Q, K and V of 128 channels with what is known to break FP8 attention, made up from a seed, and the error of each recipe.

    python -m octavo.eval.stress [--length 2048]

All cases start from N(0, 1) rows whose neighbours in the sequence are correlated (0.9), as those of a model are.

bias      K has constant offsets of 20 to 60 in eight of 128 channels, as models with a bias in the K projection
          (Qwen2) have; Q is 2 in the same channels
sink      key 0 lies along the mean query, so that rows give it about half of their weight; its V is a hundredth of
          the others
massive   tokens 0 and 171 have K and V 30 times as large in two channels (massive activations)
all       the three together
"""

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

import octavo

HEADS, KV_HEADS, D = 8, 2, 128
CASES = ("plain", "bias", "sink", "massive", "all")
Floats = NDArray[np.float32]


def operands(case: str, length: int = 2048, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """q [1, s, 8, 128], k and v [1, s, 2, 128] of a case."""
    if case not in CASES:
        raise ValueError(f"octavo.eval.stress: case is {case!r}; must be one of {', '.join(CASES)}")
    random = np.random.default_rng(seed)
    q, k, v = (_correlated(random, length, heads) for heads in (HEADS, KV_HEADS, KV_HEADS))
    channels = random.permutation(D)
    if case in ("bias", "all"):
        offsets = random.uniform(20, 60, (KV_HEADS, 8)) * random.choice([-1, 1], (KV_HEADS, 8))
        k[..., channels[:8]] += offsets.astype(np.float32)
        q[..., channels[:8]] += 2
    if case in ("sink", "all"):
        _add_sink(q, k, v)
    if case in ("massive", "all"):
        for token in {0, min(171, length - 1)}:
            k[0, token, :, channels[8:10]] *= 30
            v[0, token, :, channels[10:12]] *= 30
    return q, k, v


def _correlated(random: np.random.Generator, length: int, heads: int) -> Floats:
    """N(0, 1) each, neighbours in the sequence correlated by 0.9."""
    x = random.standard_normal((1, length, heads, D))
    for i in range(1, length):
        x[:, i] = 0.9 * x[:, i - 1] + np.sqrt(1 - 0.81) * x[:, i]
    return x.astype(np.float32)


def _add_sink(q: Floats, k: Floats, v: Floats) -> None:
    """Gives queries a common direction, and key 0 as much of it as makes its score log(length) above the others."""
    direction = np.ones(D, np.float32) * np.where(np.arange(D) % 2, 1, -1) / np.sqrt(D)
    q += 4 * direction
    k[0, 0] = direction * np.log(k.shape[1]) * np.sqrt(D) / 4 + k[0, 1:].mean(axis=0)
    v[0, 0] /= 100


def error(case: str, length: int, **arguments: Any) -> float:
    """Relative L2 error of octavo.attention() against double precision, causal."""
    q, k, v = operands(case, length)
    exact = octavo.attention(q, k, v, causal=True, engine="reference").astype(np.float64)
    got: Floats = octavo.attention(q, k, v, causal=True, **arguments)
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=2048, help="tokens (default: 2048)")
    length = parser.parse_args().length
    print(f"relative L2 error in percent, {length} tokens, {HEADS} query and {KV_HEADS} key/value heads, causal")
    print("| recipe | softmax | " + " | ".join(CASES) + " |")
    print("| --- | --- |" + " --- |" * len(CASES))
    for recipe in [*octavo.info()["recipes"], "block+rotate", "block+smooth"]:
        for softmax in ("exact", "direct") if recipe != "strict_causal" else ("exact",):
            errors = (100 * error(case, length, recipe=recipe, softmax=softmax) for case in CASES)
            print(f"| `{recipe}` | {softmax} | " + " | ".join(f"{e:.2f}" for e in errors) + " |", flush=True)


if __name__ == "__main__":
    main()
