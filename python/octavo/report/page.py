# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML file with the drawings inside it, and nothing fetched from elsewhere."""

import io
import re
from html import escape

import matplotlib

import octavo

from . import drawing, sentences
from .bench import Speeds
from .drawing import Panel
from .reader import QkvFile
from .statistics import Statistics
from .style import COLOURS, RC, light, style_sheet_variables

_STYLE = """
:root { color-scheme: light dark; LIGHT }
@media (prefers-color-scheme: dark) { :root { DARK } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1192px; padding: 20px 16px 48px; background: var(--surface); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; line-height: 1.3; margin: 40px 0 4px; }
p { margin: 4px 0 12px; max-width: 76ch; }
.note { color: var(--muted); font-size: .875rem; }
.panels { display: grid; gap: 16px 20px; grid-template-columns: repeat(auto-fill, minmax(min(340px, 100%), 1fr)); }
figure { margin: 0; }
svg { display: block; width: 100%; height: auto; max-width: 440px; }
svg text { font-family: inherit !important; }
.scroll { overflow-x: auto; margin: 8px 0 12px; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { font-weight: 500; color: var(--muted); }
th:first-child { text-align: left; padding-left: 0; color: var(--ink);
  position: sticky; left: 0; background: var(--surface); min-width: 7em; }
thead th { vertical-align: bottom; }
pre { background: var(--band); padding: 10px 12px; border-radius: 6px; font-size: .8125rem; max-width: 100%;
  white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 600px) {
  table { font-size: .8125rem; } th, td { padding: 5px 6px; } th:first-child { white-space: normal; } }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

_DISTRIBUTIONS_NOTE = (
    "Shaded: E4M3's octaves, from its largest value (448, where the largest magnitude of a block is put) to its "
    "smallest (2^-9), each a stripe; values more than one octave left of these become 0; left of the dotted line codes "
    "are subnormal, with fewer digits. The largest magnitude is that of the tensor here; that of a block is often "
    "smaller, so that fewer values are lost. Smoothed and rotated values are computed from the file's by the formulas "
    "of the quantised format, in FP32, before any rounding."
)


def page(file: QkvFile, stats: Statistics, speeds: Speeds | None) -> str:
    title = f"Octavo error report: {file.path.name}"
    sections = [_head(title, file, stats), _errors(stats), _heads(stats), _distributions(stats), _codes(stats)]
    sections += [_context(stats), _speed(file, stats, speeds)]
    style = _STYLE.replace("LIGHT", style_sheet_variables(dark=False))
    style = style.replace("DARK", style_sheet_variables(dark=True))
    return _PAGE.format(title=escape(title), style=style, body="\n".join(sections))


def facts(file: QkvFile, stats: Statistics) -> str:
    """One line: what was computed."""
    q, k, v = (x.shape for x in (file.groups[0].q, file.groups[0].k, file.groups[0].v))
    keys = "" if k[1] == q[1] else f", {k[1]} keys"
    dims = f"d {q[3]}" if q[3] == v[3] else f"d {q[3]}, dv {v[3]}"
    count = len(file.groups)
    return (
        f"{count} layer{'s' * (count > 1)}, batch {q[0]}, {q[1]} tokens{keys}, {q[2]} query heads, {k[2]} KV heads, "
        f"{dims}, {file.groups[0].q.dtype}, {file.call.describe()}; recipe {stats.recipe}"
    )


def _head(title: str, file: QkvFile, stats: Statistics) -> str:
    return (
        f"<h1>{escape(title)}</h1>\n<p class='note'>{escape(facts(file, stats))}. Errors are relative L2 of 8-bit "
        f"attention against double precision, outputs in FP32. Octavo {octavo.__version__}.</p>"
    )


def _section(name: str, title: str, seen: str, *rest: str) -> str:
    body = "\n".join(rest)
    return f"<section id='{name}'>\n<h2>{escape(title)}</h2>\n<p>{escape(seen)}</p>\n{body}\n</section>"


def _note(text: str) -> str:
    return f"<p class='note'>{escape(text)}</p>"


def _errors(stats: Statistics) -> str:
    return _section("errors", "Error of each recipe, relative L2 in %", sentences.errors(stats), _error_table(stats))


def column_names(stats: Statistics) -> list[str]:
    return [*(["mean"] if len(stats.groups) > 1 else []), *stats.groups]


def table_cells(stats: Statistics) -> list[tuple[str, list[str], list[bool]]]:
    """Recipe, texts of its errors (the mean first) and whether each is the least of its column."""
    columns = [[stats.error(r, i) for r in stats.recipes] for i in range(len(stats.groups))]
    if len(columns) > 1:
        columns.insert(0, [stats.mean_error(r) for r in stats.recipes])
    rows = zip(stats.recipes, zip(*columns, strict=True), strict=True)
    return [
        (recipe, [f"{100 * x:.2f}" for x in row], [x == min(c) for x, c in zip(row, columns, strict=True)])
        for recipe, row in rows
    ]


def _error_table(stats: Statistics) -> str:
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in column_names(stats))
    rows = []
    for recipe, texts, best in table_cells(stats):
        cells = "".join(f"<td><b>{t}</b></td>" if b else f"<td>{t}</td>" for t, b in zip(texts, best, strict=True))
        rows.append(f"<tr><th scope='row'>{_breakable(recipe)}</th>{cells}</tr>")
    return _table(f"<th scope='col'>recipe</th>{head}", rows)


def _breakable(recipe: str) -> str:
    return escape(recipe).replace("+", "<wbr>+")


def _table(head: str, rows: list[str]) -> str:
    body = "\n".join(rows)
    return f"<div class='scroll'><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"


def _heads(stats: Statistics) -> str:
    title = "Where the error is: layers and query heads"
    return _section("heads", title, sentences.heads(stats), _panels("heads", drawing.heat_maps(stats)))


def _distributions(stats: Statistics) -> str:
    panels = [p for name, found in stats.distributions.items() for p in drawing.distributions(name, found)]
    title, seen = "Magnitudes of Q, K and V", sentences.distributions(stats)
    return _section("distributions", title, seen, _panels("distributions", panels), _note(_DISTRIBUTIONS_NOTE))


def _codes(stats: Statistics) -> str:
    rows = []
    for recipe, found in stats.codes.items():
        for c in found:
            cells = f"<td>{sentences.percent(c.flushed)}</td><td>{sentences.percent(c.largest)}</td>"
            rows.append(f"<tr><th scope='row'>{_breakable(recipe)}, {c.operand.upper()}</th>{cells}</tr>")
    names = ("recipe, operand", "flushed to 0", "at the largest")
    table = _table("".join(f"<th scope='col'>{name}</th>" for name in names), rows)
    note = _note(
        "All layers together. Flushed: codes that are 0 though the value was not. At the largest: codes of the "
        "format's largest magnitude, where each scale puts at least one. Exponents under -6 are E4M3's subnormal codes."
    )
    panels = _panels("codes", drawing.codes(stats))
    return _section("codes", "Codes in use", sentences.codes(stats), panels, table, note)


def _context(stats: Statistics) -> str:
    panels = _panels("context", drawing.context(stats)) if stats.context else ""
    return _section("context", "Error against context length", sentences.context(stats), panels)


def _speed(file: QkvFile, stats: Statistics, speeds: Speeds | None) -> str:
    title = "Error against speed"
    if speeds is None:
        d = file.groups[0].q.shape[3]
        problem = f"b4 s4096 h{2048 // d} d{d}" + " causal" * file.call.causal
        commands = "\n".join(sentences.NO_SPEED_COMMANDS).format(problem=problem)
        return _section("speed", title, sentences.NO_SPEED, f"<pre>{escape(commands)}</pre>")
    note = _note(
        f"Speeds: problem {speeds.problem!r} on {speeds.device}, from 16-bit operands to the output. Errors: of this "
        "file, the mean of its layers."
    )
    panels = _panels("speed", [drawing.speed(stats, speeds)])
    return _section("speed", title, sentences.speed(stats, speeds), panels, note)


def _panels(name: str, panels: list[Panel]) -> str:
    figures = [f"<figure>{inline_svg(p, f'{name}{i}')}</figure>" for i, p in enumerate(panels)]
    return "<div class='panels'>\n" + "\n".join(figures) + "\n</div>"


def inline_svg(panel: Panel, name: str) -> str:
    """The drawing as an SVG element: its colours variables of the page, its ids unlike those of other drawings."""
    buffer = io.StringIO()
    with matplotlib.rc_context(RC):
        panel.figure.savefig(buffer, format="svg", transparent=True)
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r"#[0-9a-f]{6}\b", lambda match: _VARIABLES.get(match[0], match[0]), text)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text)
    text = text.replace("<svg", f'<svg role="img" aria-label="{escape(panel.label)}"', 1)
    return re.sub(r"\n\s*", "\n", _own_ids(text, name)).strip()


_VARIABLES = {light(name): f"var(--{name})" for name in COLOURS}


def _own_ids(text: str, name: str) -> str:
    """Keeps the ids that something refers to, under names that begin with `name`."""
    used = {x: f"{name}-{i}" for i, x in enumerate(dict.fromkeys(re.findall(r'(?:url\(#|href="#)([^")]+)', text)))}
    text = re.sub(r'\sid="([^"]*)"', lambda m: f' id="{used[m[1]]}"' if m[1] in used else "", text)
    return re.sub(r'(url\(#|href="#)([^")]+)', lambda m: m[1] + used[m[2]], text)
