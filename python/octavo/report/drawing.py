# SPDX-License-Identifier: Apache-2.0
"""The drawings, each a small figure of the same width that a page can lay out in columns."""

import math
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from .bench import Speeds
from .statistics import DEPTH, Codes, Distribution, Statistics, Variant
from .style import RAMP, RC, STEPS, light

WIDTH = 360  # of a figure, in points of its drawing
# From E4M3's largest value, 448, to its smallest, 2^-9, in octaves; and to its smallest normal one, 2^-6.
E4M3_DEPTH, E4M3_NORMAL_DEPTH = math.log2(448) + 9, math.log2(448) + 6
_NUMBERS_UP_TO = 12  # heads: with more, cells are too small for numbers
_STAGES = {"as in the file": "muted", "smoothed": "orange", "rotated": "blue", "smoothed, rotated": "blue"}
_MARKERS = "osD^v"


@dataclass(frozen=True)
class Panel:
    """One drawing and what it shows, for those who do not see it."""

    label: str
    figure: Figure


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH / 72, height / 72), facecolor="none")
    axes = figure.add_subplot()
    return figure, axes


def _place(figure: Figure, left: float, bottom: float, right: float = 14, top: float = 26) -> None:
    """Margins in points."""
    width, height = (72 * x for x in figure.get_size_inches())
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height)


def _short(name: str) -> str:
    """The end of a long name."""
    return name if len(name) <= 16 else "\N{HORIZONTAL ELLIPSIS}" + name[-15:]


# Heat maps of errors per layer and query head.


def heat_maps(stats: Statistics) -> list[Panel]:
    names = list(dict.fromkeys([stats.recipe, "per_tensor"]))
    tables = [_head_table(stats, name) for name in names]
    step = _nice_step(max(float(np.nanmax(t)) for t in tables))
    with matplotlib.rc_context(RC):
        return [_heat_map(name, table, stats.groups, step) for name, table in zip(names, tables, strict=True)]


def _head_table(stats: Statistics, recipe: str) -> NDArray[np.float64]:
    """Percent, [layers, heads]; NaN where a layer has fewer heads than another."""
    rows = [100 * e.heads for e in stats.errors[recipe, "exact"]]
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table


def _nice_step(largest: float) -> float:
    """The least round number of which STEPS reach `largest`."""
    power = 10.0 ** math.floor(math.log10(max(largest, 1e-6) / STEPS))
    return next(f * power for f in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if f * power * STEPS >= largest)


def _heat_map(name: str, table: NDArray[np.float64], groups: list[str], step: float) -> Panel:
    rows, columns = table.shape
    cell = min(30.0, max(420.0 / rows, 5.0))
    figure, axes = _figure(rows * cell + 88)
    labels = [_short(name) for name in groups]
    _place(figure, left=18 + 5.6 * max(map(len, labels)), bottom=62)
    _fill_cells(axes, table, step)
    if columns <= _NUMBERS_UP_TO and cell > 15:
        _write_numbers(axes, table, step)
    axes.set(xlim=(0, columns), ylim=(rows, 0), title=f"{name}: error per head, %")
    every = -(-columns // 16)
    axes.set_xticks(np.arange(0, columns, every) + 0.5, [str(i) for i in range(0, columns, every)])
    some = -(-rows * 12 // int(rows * cell))
    axes.set_yticks(np.arange(0, rows, some) + 0.5, labels[::some])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("query head", labelpad=2)
    _colour_scale(figure, axes, step)
    return Panel(f"Relative L2 error of {name} per layer and query head", figure)


def _fill_cells(axes: Axes, table: NDArray[np.float64], step: float) -> None:
    """One path for each colour, which keeps the page small."""
    gap = 0.03
    side = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)])
    strokes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    for level in range(STEPS):
        where = np.argwhere(_levels(table, step) == level)
        if where.size:
            squares = [side * (1 - 2 * gap) + (x + gap, y + gap) for y, x in where]
            path = Path(np.concatenate(squares), np.tile(strokes, len(squares)))
            axes.add_patch(PathPatch(path, facecolor=RAMP[level], edgecolor="none"))


def _levels(table: NDArray[np.float64], step: float) -> NDArray[np.int64]:
    levels = np.clip(np.floor(np.nan_to_num(table, nan=-1) / step), -1, STEPS - 1)
    return levels.astype(np.int64)


def _write_numbers(axes: Axes, table: NDArray[np.float64], step: float) -> None:
    levels = _levels(table, step)
    for (y, x), value in np.ndenumerate(table):
        if levels[y, x] >= 0:
            ink = light("cell-low" if levels[y, x] < 6 else "cell-high")
            text = f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
            axes.text(x + 0.5, y + 0.53, text, color=ink, size=9.5, ha="center", va="center")


def _colour_scale(figure: Figure, axes: Axes, step: float) -> None:
    box = axes.get_position()
    height = 72 * float(figure.get_size_inches()[1])
    scale = figure.add_axes((box.x0, 18 / height, box.width, 8 / height))
    for level in range(STEPS):
        scale.axvspan(level, level + 1, facecolor=RAMP[level], edgecolor="none")
    ends = range(0, STEPS + 1, 2)
    scale.set(xlim=(0, STEPS), xticks=ends, xticklabels=[f"{step * i:g}" for i in ends], yticks=[])
    scale.tick_params(length=0, pad=3)
    scale.spines[:].set_visible(False)


# Distributions of magnitudes.


def distributions(name: str, found: list[Distribution]) -> list[Panel]:
    with matplotlib.rc_context(RC):
        return [_distribution(name, operand, [d for d in found if d.operand == operand]) for operand in "qkv"]


def _distribution(name: str, operand: str, stages: list[Distribution]) -> Panel:
    figure, axes = _figure(218)
    _place(figure, left=54, bottom=40)
    edges = -np.arange(2 * DEPTH + 1) / 2
    _mark_e4m3(axes)
    for stage in stages:
        shares = np.where(stage.shares > 0, 100 * stage.shares, 1e-4)
        label = f"{stage.stage}: up to {stage.largest:#.3g}"
        axes.stairs(shares[::-1], edges[::-1], color=light(_STAGES[stage.stage]), label=label, linewidth=1.8)
    axes.set(yscale="log", ylim=(1e-3, 400), xlim=(-DEPTH, 0), title=f"{_short(name)}: |{operand.upper()}|")
    axes.set_yticks([1e-3, 1e-2, 0.1, 1, 10, 100], ["0.001", "0.01", "0.1", "1", "10", "100"])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(range(-20, 1, 4))
    axes.set_xlabel("log2(magnitude / largest)", labelpad=2)
    axes.set_ylabel("% of values", labelpad=2)
    axes.legend(loc="upper left", borderpad=0, handlelength=1.2, labelspacing=0.2)
    return Panel(f"Distribution of the magnitudes of {operand.upper()} in {name}", figure)


def _mark_e4m3(axes: Axes) -> None:
    axes.axvspan(-E4M3_DEPTH, 0, facecolor=light("band"), edgecolor="none", zorder=0)
    for octave in range(1, math.ceil(E4M3_DEPTH)):
        axes.axvline(-octave, color=light("surface"), linewidth=0.6, zorder=0.5)
    axes.axvline(-E4M3_NORMAL_DEPTH, color=light("muted"), linewidth=0.8, linestyle=(0, (2, 2)), ymax=0.76, zorder=0.6)


# Codes.


def codes(stats: Statistics) -> list[Panel]:
    with matplotlib.rc_context(RC):
        return [_codes(i, operand, stats) for i, operand in enumerate("QKV")]


def _codes(index: int, operand: str, stats: Statistics) -> Panel:
    figure, axes = _figure(218)
    _place(figure, left=44, bottom=40)
    colours = {"per_tensor": "green", stats.recipe: "blue"}
    for name, found in stats.codes.items():
        _code_bars(axes, name, found[index], light(colours[name]), outline=name != stats.recipe)
    exponents = stats.codes[stats.recipe][index].exponents
    largest = max(float(found[index].shares.max()) for found in stats.codes.values())
    axes.set(ylim=(0, 135 * largest or 1), title=f"{operand}: codes in use")
    axes.set_xticks([e for e in exponents if e % 3 == 0])
    axes.set_xlabel("exponent of the code's value, before the descale", labelpad=2)
    axes.set_ylabel("% of codes", labelpad=2)
    axes.legend(loc="upper left", borderpad=0, handlelength=1.2, labelspacing=0.2)
    return Panel(f"Codes of {operand} by exponent", figure)


def _code_bars(axes: Axes, name: str, found: Codes, colour: str, outline: bool) -> None:
    if outline:
        edges = np.append(found.exponents, found.exponents[-1] + 1) - 0.5
        axes.stairs(100 * found.shares, edges, color=colour, linewidth=1.8, label=name)
    else:
        axes.bar(found.exponents, 100 * found.shares, width=0.84, color=colour, label=name)


# Error against context length.


def context(stats: Statistics) -> list[Panel]:
    highest = max(e for curves in stats.context.values() for errors in curves.values() for e in errors)
    with matplotlib.rc_context(RC):
        return [_context(name, curves, stats, highest) for name, curves in stats.context.items()]


def _context(name: str, curves: dict[str, list[float]], stats: Statistics, highest: float) -> Panel:
    figure, axes = _figure(218)
    _place(figure, left=44, bottom=40)
    axes.grid(axis="y")
    for (recipe, errors), marker, colour in zip(curves.items(), _MARKERS, _SERIES, strict=False):
        percent = [100 * e for e in errors]
        axes.plot(stats.lengths, percent, color=light(colour), marker=marker, markersize=5, label=recipe)
    axes.set(xscale="log", ylim=(0, 145 * highest or 1), title=f"{_short(name)}: error of the first n tokens")
    ticks = stats.lengths[:: -(-len(stats.lengths) // 8)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:.0f}" if n < 10000 else f"{n / 1024:.0f}k"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("n, tokens", labelpad=2)
    axes.set_ylabel("relative L2, %", labelpad=2)
    axes.legend(loc="upper left", borderpad=0, handlelength=1.6, labelspacing=0.2, ncols=2, columnspacing=1.2)
    return Panel(f"Error of {name} against the number of tokens", figure)


_SERIES = ("blue", "orange", "green", "violet")


# Error against speed.


def front(points: dict[Variant, tuple[float, float]]) -> list[Variant]:
    """The variants that no other beats in speed and error alike, slowest first."""
    found = []
    for variant, (speed, error) in points.items():
        others = [p for v, p in points.items() if v != variant]
        if not any(s >= speed and e <= error and (s, e) != (speed, error) for s, e in others):
            found.append(variant)
    return sorted(found, key=lambda v: points[v])


def speed(stats: Statistics, speeds: Speeds) -> Panel:
    points = {v: (tflops, 100 * stats.mean_error(*v)) for v, tflops in speeds.tflops.items()}
    with matplotlib.rc_context(RC):
        return _speed(points)


def _speed(points: dict[Variant, tuple[float, float]]) -> Panel:
    figure, axes = _figure(240)
    _place(figure, left=54, bottom=40)
    axes.grid()
    line = [points[v] for v in front(points)]
    axes.plot(*zip(*line, strict=True), color=light("muted"), linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
    middle = sum(x for x, _ in points.values()) / len(points)
    for (recipe, softmax), (x, y) in points.items():
        direct = softmax == "direct"
        axes.plot(x, y, marker="s" if direct else "o", markersize=8, color=light("orange" if direct else "blue"))
        side = "left" if x < middle else "right"
        shift = (9 if side == "left" else -9, 6)
        axes.annotate(f"{recipe}, {softmax}", (x, y), shift, textcoords="offset points", ha=side, size=10)
    axes.margins(0.15, 0.25)
    axes.set(title="All layers: error against speed")
    axes.set_xlabel("TFLOPS, from 16 bits to the output", labelpad=2)
    axes.set_ylabel("mean relative L2, %", labelpad=2)
    return Panel("Error of recipes against their speed", figure)
