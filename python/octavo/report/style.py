# SPDX-License-Identifier: Apache-2.0
"""Colours. Drawings are made in the light ones; in the page each becomes a variable of its style sheet."""

from itertools import pairwise
from typing import Any

STEPS = 10  # of the colour scale of errors


def _blend(anchors: tuple[str, ...]) -> list[str]:
    """STEPS colours along straight lines between anchors."""
    points = [tuple(int(a[i : i + 2], 16) for i in (1, 3, 5)) for a in anchors]
    colours = []
    for step in range(STEPS):
        place = step / (STEPS - 1) * (len(points) - 1)
        at = min(int(place), len(points) - 2)
        low, high = list(pairwise(points))[at]
        mixed = (round(a + (b - a) * (place - at)) for a, b in zip(low, high, strict=True))
        colours.append("#" + "".join(f"{x:02x}" for x in mixed))
    return colours


# name: light, dark. No two light colours are equal: they are told apart by their value.
COLOURS: dict[str, tuple[str, str]] = {
    "surface": ("#fcfcfb", "#191a1c"),
    "ink": ("#1c2024", "#eceef0"),
    "muted": ("#5b6168", "#a9afb6"),
    "rule": ("#d9dcdf", "#3a3e43"),
    "band": ("#eef1f4", "#25292e"),
    "blue": ("#2a74d0", "#5a9df0"),
    "orange": ("#d9591f", "#f0834f"),
    "green": ("#15845b", "#35b988"),
    "violet": ("#7a4fc4", "#a98cf0"),
    "cell-low": ("#14233a", "#e8f0fa"),
    "cell-high": ("#fdfdfe", "#0a1626"),
}
_RAMPS = (_blend(("#e3eefb", "#5b9bea", "#0b2f66")), _blend(("#1b2f4a", "#2f6fc4", "#d6e8ff")))
COLOURS.update({f"ramp{i}": pair for i, pair in enumerate(zip(*_RAMPS, strict=True))})

RAMP = _RAMPS[0]


def light(name: str) -> str:
    return COLOURS[name][0]


def style_sheet_variables(dark: bool) -> str:
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in COLOURS.items())


RC: Any = {  # of matplotlib, whose own type for it lists every key
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": light("ink"),
    "axes.labelsize": 10.5,
    "axes.labelcolor": light("muted"),
    "axes.edgecolor": light("rule"),
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "grid.color": light("rule"),
    "grid.linewidth": 0.7,
    "text.color": light("ink"),
    "text.parse_math": False,
    "xtick.color": light("rule"),
    "ytick.color": light("rule"),
    "xtick.labelcolor": light("muted"),
    "ytick.labelcolor": light("muted"),
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 2,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "octavo",
    "figure.dpi": 72,
}
