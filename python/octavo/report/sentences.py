# SPDX-License-Identifier: Apache-2.0
"""What is seen in each part of the report, in words."""

import numpy as np

from .bench import Speeds
from .drawing import front
from .statistics import Statistics


def percent(share: float) -> str:
    """Two digits behind the point; more where they would all be 0."""
    value = 100 * share
    return (f"{value:.2f}" if value == 0 or value >= 0.005 else f"{value:.1g}") + "\N{NO-BREAK SPACE}%"


def join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def best_recipe(stats: Statistics, group: int) -> str:
    return min(stats.recipes, key=lambda r: stats.error(r, group))


def errors(stats: Statistics) -> str:
    lowest = min(stats.recipes, key=stats.mean_error)
    text = f"{lowest} has the lowest mean error, {percent(stats.mean_error(lowest))}"
    if lowest != stats.recipe:
        text += f"; {stats.recipe} has {percent(stats.mean_error(stats.recipe))}"
    wins = sum(best_recipe(stats, i) == lowest for i in range(len(stats.groups)))
    if len(stats.groups) > 1:
        text += f"; {lowest} is the best in {wins} of {len(stats.groups)} layers"
    return text + "."


def _worst_head(stats: Statistics, recipe: str) -> tuple[float, str, int]:
    found = ((e.heads, name) for e, name in zip(stats.errors[recipe, "exact"], stats.groups, strict=True))
    return max((float(heads.max()), name, int(heads.argmax())) for heads, name in found)


def heads(stats: Statistics) -> str:
    worst, layer, head = _worst_head(stats, stats.recipe)
    text = f"The largest error of {stats.recipe} is {percent(worst)}, in head {head} of {layer}"
    if stats.recipe == "per_tensor":
        return text + "."
    other, layer, head = _worst_head(stats, "per_tensor")
    pairs = zip(stats.errors[stats.recipe, "exact"], stats.errors["per_tensor", "exact"], strict=True)
    lower = np.concatenate([a.heads < b.heads for a, b in pairs])
    return (
        f"{text}; of per_tensor it is {percent(other)}, in head {head} of {layer}. "
        f"{stats.recipe} has the lower error in {np.count_nonzero(lower)} of {lower.size} heads."
    )


def distributions(stats: Statistics) -> str:
    """Of the group where smoothing and rotation change K's largest magnitude most."""
    stages = {name: [d for d in found if d.operand == "k"] for name, found in stats.distributions.items()}
    name = max(stages, key=lambda x: stages[x][0].largest / max(stages[x][-1].largest, 1e-30))
    before, _, after = stages[name]
    first, second, third = (f"{stage.largest:#.3g}" for stage in stages[name])
    return (
        f"In {name}, K's largest magnitude is {first} in the file, {second} after smoothing and {third} after "
        f"rotation; half of its values lie within {before.median:.1f} octaves below the largest at first, within "
        f"{after.median:.1f} in the end."
    )


def codes(stats: Statistics) -> str:
    own = stats.codes[stats.recipe]
    text = f"Under {stats.recipe} {join([f'{percent(c.flushed)} of {c.operand.upper()}' for c in own])} became 0"
    other = "per_tensor"
    if stats.recipe == other:
        return text + "."
    flushed = [f"{percent(c.flushed)} of {c.operand.upper()}" for c in stats.codes[other]]
    return f"{text}; under {other}, {join(flushed)}."


def context(stats: Statistics) -> str:
    if not stats.context:
        return "Left out: Q and K have not the same number of tokens in all groups."
    first, last = stats.lengths[0], stats.lengths[-1]
    change = [
        f"from {percent(curves[stats.recipe][0])} to {percent(curves[stats.recipe][-1])} in {name}"
        for name, curves in stats.context.items()
    ]
    return f"From the first {first} tokens to the first {last}, the error of {stats.recipe} goes {join(change)}."


def speed(stats: Statistics, speeds: Speeds) -> str:
    points = {v: (tflops, stats.mean_error(*v)) for v, tflops in speeds.tflops.items()}
    names = [f"{recipe} ({softmax} softmax)" for recipe, softmax in front(points)]
    return f"On the front, from slow to fast: {join(names)}."


NO_SPEED = "No speeds were given. On a machine with a Hopper GPU:"
NO_SPEED_COMMANDS = (
    'octavo bench gpu --reps 20 --json attention.json "{problem}" "{problem} softmax=direct" '
    '"{problem} recipe=block" "{problem} recipe=block softmax=direct"',
    "python -m octavo.report IN -o OUT.html --bench attention.json",
)
