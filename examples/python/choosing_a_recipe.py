# SPDX-License-Identifier: Apache-2.0
"""Which recipe suits which Q, K and V: the error of each against double precision. Needs no GPU.

Run it on operands of your own model before choosing: put them into `kinds`.
"""

import numpy as np
import numpy.typing as npt

import octavo

Floats = npt.NDArray[np.float32]
Operands = tuple[Floats, Floats, Floats]

BATCH, TOKENS, HEADS, DIM = 4, 512, 4, 64


def normal(rng: np.random.Generator) -> Operands:
    """Every element from N(0, 1)."""
    q, k, v = (rng.standard_normal((BATCH, TOKENS, HEADS, DIM), np.float32) for _ in "qkv")
    return q, k, v


def offset_keys(rng: np.random.Generator) -> Operands:
    """Each channel of K has an offset, the same for all tokens and several times as large as what varies.

    Softmax does not see it, but FP8 rounds each key relative to it.
    """
    q, k, v = normal(rng)
    return q, k + 8 * rng.standard_normal((1, 1, HEADS, DIM), np.float32), v


def outliers(rng: np.random.Generator) -> Operands:
    """One channel in 32 of K is 6 times as large as the others, two tokens of V are 10 times as large."""
    q, k, v = normal(rng)
    k[..., ::32] *= 6
    v[:, [100, 300]] *= 10
    return q, k, v


def relative_error(got: Floats, want: Floats) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def errors_of(operands: Operands, recipes: list[str]) -> dict[str, float]:
    exact = octavo.attention(*operands, engine="reference")
    return {recipe: relative_error(octavo.attention(*operands, recipe=recipe), exact) for recipe in recipes}


def verdict(errors: dict[str, float]) -> str:
    best = min(errors, key=lambda recipe: errors[recipe])
    worst = max(errors, key=lambda recipe: errors[recipe])
    ratio = errors[worst] / errors[best]
    if ratio < 1.05:
        return f"{best} is best, but the worst error is within {100 * (ratio - 1):.0f} % of its: any recipe will do"
    return f"{best} is best: {worst} has {ratio:.1f} times its error"


def main() -> None:
    kinds = {"normal": normal, "offset keys": offset_keys, "outliers": outliers}
    recipes = octavo.info()["recipes"]
    results = {name: errors_of(make(np.random.default_rng(0)), recipes) for name, make in kinds.items()}

    print("relative L2 error, %".ljust(22) + "".join(name.rjust(13) for name in kinds))
    for recipe in recipes:
        print(recipe.ljust(22) + "".join(f"{100 * errors[recipe]:13.2f}" for errors in results.values()))
    for name, errors in results.items():
        print(f"{name}: {verdict(errors)}")


if __name__ == "__main__":
    main()
