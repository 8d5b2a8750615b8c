# SPDX-License-Identifier: Apache-2.0
"""The report as one PNG: the same drawings in three columns, in light colours."""

import io
import textwrap
from pathlib import Path

import matplotlib
import matplotlib.image
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from . import drawing, sentences
from .bench import Speeds
from .drawing import WIDTH, Panel
from .page import column_names, facts, table_cells
from .reader import QkvFile
from .statistics import Statistics
from .style import RC, light

_COLUMNS, _SCALE = 3, 1.5  # pixels for a point
_COLUMNS_OF_TABLE = 10
_LETTERS_OF_LINE = 165

Pixels = NDArray[np.uint8]


def write_picture(path: Path, file: QkvFile, stats: Statistics, speeds: Speeds | None) -> None:
    strips = [_text(f"Octavo error report: {file.path.name}", 17, facts(file, stats))]
    strips += [_heading("Error of each recipe, relative L2 in %", sentences.errors(stats)), _pixels(_table(stats))]
    parts = [("Where the error is: layers and query heads", sentences.heads(stats), drawing.heat_maps(stats))]
    magnitudes = [p for name, found in stats.distributions.items() for p in drawing.distributions(name, found)]
    parts.append(("Magnitudes of Q, K and V (shaded: E4M3's octaves)", sentences.distributions(stats), magnitudes))
    parts.append(("Codes in use", sentences.codes(stats), drawing.codes(stats)))
    if stats.context:
        parts.append(("Error against context length", sentences.context(stats), drawing.context(stats)))
    if speeds is not None:
        parts.append(("Error against speed", sentences.speed(stats, speeds), [drawing.speed(stats, speeds)]))
    for title, seen, panels in parts:
        strips += [_heading(title, seen), *_rows(panels)]
    width = max(strip.shape[1] for strip in strips)
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, np.concatenate([_padded(s, s.shape[0], width) for s in strips]), format="png")
    path.write_bytes(buffer.getvalue())


def _heading(title: str, seen: str) -> Pixels:
    return _text(title, 13.5, seen)


def _text(title: str, size: float, below: str) -> Pixels:
    lines = textwrap.wrap(below, _LETTERS_OF_LINE)
    height = 46 + 16 * len(lines)
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(_COLUMNS * WIDTH / 72, height / 72))
        figure.text(0.012, 1 - 31 / height, title, size=size, weight="bold")
        text = figure.text(0.012, 1 - 38 / height, "\n".join(lines), size=10.5, color=light("muted"))
        text.set(va="top", linespacing=1.3)
    return _pixels(figure)


def _table(stats: Statistics) -> Figure:
    """Recipes and groups; of many groups the means only."""
    rows, names = table_cells(stats), column_names(stats)
    shown = len(names) if len(names) <= _COLUMNS_OF_TABLE else 1
    height = 19 * (len(rows) + 1) + 10
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(_COLUMNS * WIDTH / 72, height / 72))
        for i, name in enumerate(names[:shown]):
            figure.text(0.25 + 0.07 * i, 1 - 15 / height, name[-12:], color=light("muted"), ha="right", size=10.5)
        for y, (recipe, texts, best) in enumerate(rows, 1):
            line = 1 - (15 + 19 * y) / height
            figure.text(0.012, line, recipe, size=11)
            for i, (text, bold) in enumerate(zip(texts[:shown], best[:shown], strict=True)):
                weight = "bold" if bold else "normal"
                figure.text(0.25 + 0.07 * i, line, text, ha="right", size=11, weight=weight)
    return figure


def _rows(panels: list[Panel]) -> list[Pixels]:
    """Panels side by side, _COLUMNS in a row."""
    drawn = [_pixels(panel.figure) for panel in panels]
    rows = []
    for i in range(0, len(drawn), _COLUMNS):
        row = drawn[i : i + _COLUMNS]
        height = max(x.shape[0] for x in row)
        rows.append(np.concatenate([_padded(x, height, x.shape[1]) for x in row], axis=1))
    return rows


def _pixels(figure: Figure) -> Pixels:
    figure.set_facecolor(light("surface"))
    buffer = io.BytesIO()
    with matplotlib.rc_context(RC):
        figure.savefig(buffer, format="png", dpi=72 * _SCALE)
    buffer.seek(0)
    return np.round(255 * matplotlib.image.imread(buffer)[..., :3]).astype(np.uint8)


def _padded(pixels: Pixels, height: int, width: int) -> Pixels:
    colour = [int(light("surface")[i : i + 2], 16) for i in (1, 3, 5)]
    wide = np.full((height, width, 3), colour, np.uint8)
    wide[: pixels.shape[0], : pixels.shape[1]] = pixels
    return wide
