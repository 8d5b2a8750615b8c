# SPDX-License-Identifier: Apache-2.0
"""octavo.report: the page of a Q/K/V file. Skips where matplotlib is not installed."""

import json
import os
import re
import struct
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from cli_support import ROOT
from octavo_support import octavo, qkv

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from octavo.report import bench, drawing, reader, statistics, style, transforms  # noqa: E402
from octavo.report.__main__ import main  # noqa: E402

PACKAGE = Path(octavo.__file__).parent
SECTIONS = ["errors", "heads", "distributions", "codes", "context", "speed"]
NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_TFLOPS = {"": 500, " softmax=direct": 700, " recipe=block": 400, " recipe=block+e5m2": 600}
BENCH = {
    "device": "a GPU",
    "results": [
        {"problem": f"b4 s4096 h32 d64 causal{options}", "end_to_end_tflops": tflops}
        for options, tflops in _TFLOPS.items()
    ]
    + [{"problem": "s16384 h16 recipe=block", "end_to_end_tflops": 900}],
}


def save(path, tensors, metadata=None):
    """A safetensors file."""
    header, data = {"__metadata__": metadata or {}}, b""
    for name, x in tensors.items():
        span = [len(data), len(data) + x.nbytes]
        header[name] = {"dtype": NAMES[x.dtype.name], "shape": list(x.shape), "data_offsets": span}
        data += np.ascontiguousarray(x).tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def layers(dtype="bf16", layout="bshd"):
    """Two groups of 160 tokens with an offset in K."""
    tensors = {}
    for seed in range(2):
        for name, x in zip("qkv", qkv(b=1, sq=160, sk=160, hq=4, hkv=2, dtype=dtype, seed=seed), strict=True):
            x = (x.astype(np.float32) + 3 * (name == "k") * (np.arange(64) % 8 == 0)).astype(x.dtype)
            tensors[f"layer{seed:02}.{name}"] = x if layout == "bshd" else x.swapaxes(1, 2)
    return tensors


def report(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["octavo.report", *map(str, arguments)])
    return main()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The file, its page with speeds, and its picture."""
    folder = tmp_path_factory.mktemp("report")
    source = save(folder / "in.safetensors", layers(), {"causal": "true"})
    (folder / "bench.json").write_text(json.dumps(BENCH))
    with pytest.MonkeyPatch.context() as patch:
        outputs = ("-o", folder / "out.html", "--png", folder / "out.png")
        assert report(patch, source, *outputs, "--bench", folder / "bench.json") == 0
    return source, (folder / "out.html").read_text(), (folder / "out.png").read_bytes()


class Page(HTMLParser):
    """Sections, the rows of the tables in them, references, ids; tags that are closed as they were opened."""

    def __init__(self, text):
        super().__init__()
        self.sections, self.rows, self.references, self.ids, self.open = [], {}, [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.references += [found[x] for x in ("src", "href", "xlink:href", "data", "srcset") if x in found]
        if tag == "section":
            self.sections.append(found["id"])
        if tag == "tr":
            self.rows.setdefault(self.sections[-1], []).append([])
        if tag in ("td", "th"):
            self.rows[self.sections[-1]][-1].append("")
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.rows[self.sections[-1]][-1][-1] += data


def test_the_page_has_every_section(made):
    _, text, picture = made
    page = Page(text)
    assert page.sections == SECTIONS
    assert len(page.ids) == len(set(page.ids))
    assert text.count("<svg") == 2 + 2 * 3 + 3 + 2 + 1 == text.count("role=\"img\"")
    assert "causal; recipe default" in text and "160 tokens, 4 query heads, 2 KV heads" in text
    assert picture.startswith(b"\x89PNG") and len(text) < 2_000_000


def test_the_page_is_self_contained(made):
    _, text, _ = made
    page = Page(text)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert all(x.startswith(("#", "data:")) for x in page.references)
    assert {x[1:] for x in page.references if x[0] == "#"} <= set(page.ids)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(page.ids)
    assert "<script" not in text and "@import" not in text and "<link" not in text


def test_every_colour_of_a_drawing_follows_the_theme(made):
    drawings = "".join(re.findall(r"<svg.*?</svg>", made[1], re.DOTALL))
    assert "var(--ink)" in drawings and not re.search(r"(fill|stroke): #", drawings)
    lights = [pair[0] for pair in style.COLOURS.values()]
    assert len(set(lights)) == len(lights)


def relative_error(tensors, prefix, **options):
    q, k, v = (tensors[prefix + n] for n in "qkv")
    want, got = (
        octavo.attention(q, k, v, causal=True, out_dtype="f32", **kind).astype(np.float64)
        for kind in ({"engine": "reference"}, options)
    )
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def test_the_table_has_the_errors_of_attention(made):
    head, *rows = Page(made[1]).rows["errors"]
    assert head == ["recipe", "mean", "layer00", "layer01"]
    assert [row[0] for row in rows] == list(statistics.RECIPES)
    tensors, best = layers(), re.findall(r"<b>([0-9.]+)</b>", made[1])
    columns = []
    for layer in ("layer00.", "layer01."):
        columns.append([relative_error(tensors, layer, recipe=r) for r in statistics.RECIPES])
    columns.insert(0, np.mean(columns, axis=0))
    for row, errors in zip(rows, zip(*columns, strict=True), strict=True):
        assert row[1:] == [f"{100 * e:.2f}" for e in errors]
    assert sorted(best) == sorted(f"{100 * min(column):.2f}" for column in columns)


def test_figures_of_heads_context_and_direct_softmax(made):
    file = reader.read(made[0])
    stats = statistics.collect(file, "block", statistics.Where(), [("default", "direct")])
    tensors = layers()
    assert stats.mean_error("default", "direct") == pytest.approx(
        np.mean([relative_error(tensors, f"layer{i:02}.", softmax="direct") for i in range(2)])
    )
    one_head = {n: tensors[f"layer01.{n}"] for n in "qkv"}
    group = file.groups[1]
    want, got = (statistics.attend(group, file.call, statistics.Where(e), "block") for e in ("reference", "emulate"))
    errors = [np.linalg.norm(got[:, :, h] - want[:, :, h]) / np.linalg.norm(want[:, :, h]) for h in range(4)]
    np.testing.assert_allclose(stats.errors["block", "exact"][1].heads, errors, rtol=1e-5)
    assert stats.lengths == [64, 128, 160]
    first = {name: x[:, :64] for name, x in one_head.items()}
    assert stats.context["layer01"]["block"][0] == pytest.approx(relative_error(first, "", recipe="block"))
    assert stats.context["layer01"]["block"][2] == stats.errors["block", "exact"][1].total


@pytest.mark.parametrize("d", [64, 72, 192])
@pytest.mark.parametrize("lengths", [None, (300, 77)])
@pytest.mark.parametrize("recipe", ["fp8", "default"])
def test_transforms_are_those_of_the_library(d, lengths, recipe):
    q, k, _ = qkv(b=2, sq=40, sk=300, d=d)
    k = k + 5
    quantized = octavo.quantize(q, k, k, recipe=recipe, key_lengths=lengths)
    steps = transforms.steps_of(recipe)
    for name, x in (("q", q), ("k", k)):
        values = transforms.prepared(name, x, steps, lengths)
        codes = getattr(quantized, name).dequantize()
        for i in range(2):
            n = 40 if name == "q" else (lengths or (300, 300))[i]
            error = np.abs(values[i, :n] - codes[i, :n])
            largest = np.abs(values).max()
            # FP32 is rotated in 16 bits: 2^-18 of an element, of n of which this is the sum over sqrt(n).
            kept = largest * 2.0**-14
            step = largest / 254 if recipe == "default" else np.abs(values[i, :n]) / 16
            assert (error <= step + kept).all()


def test_codes_are_counted():
    """One block of 128 rows: 1 at 448, 2 values that become 0, a true 0, the others at exponent 0."""
    x = np.full((1, 128, 1, 64), 1 / 448, np.float32)
    x[0, 0, 0, :4] = 1, 1e-7, -1e-7, 0
    group = reader.Group("all", x, x, x)
    file = reader.QkvFile(Path("x"), (group,), reader.Call())
    found = statistics.collect(file, "per_tensor", statistics.Where()).codes["per_tensor"]
    for codes in found:
        assert codes.flushed == 2 / 8192 and codes.largest == 1 / 8192
        assert list(codes.exponents) == list(range(-9, 9))
        assert codes.shares[9] == 8188 / 8192 and codes.shares[-1] == 1 / 8192
        assert codes.shares.sum() == 8189 / 8192


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_reader(tmp_path, dtype, layout):
    meta = {"octavo.layout": layout, "octavo.window": "9,all", "octavo.softcap": "20", "octavo.key_lengths": "150"}
    tensors = layers(dtype, layout)
    file = reader.read(save(tmp_path / "in.safetensors", tensors, meta))
    assert [g.name for g in file.groups] == ["layer00", "layer01"]
    want = tensors["layer01.k"] if layout == "bshd" else tensors["layer01.k"].swapaxes(1, 2)
    assert file.groups[1].k.dtype == want.dtype and (file.groups[1].k == want).all()
    assert file.call == reader.Call(window=(9, None), softcap=20.0, key_lengths=(150,))
    assert file.call.describe() == "window 9, all, softcap 20, key lengths 150"


def test_speeds_and_their_front(made, tmp_path):
    (tmp_path / "bench.json").write_text(json.dumps(BENCH))
    speeds = bench.read_speeds(tmp_path / "bench.json", reader.read(made[0]))
    assert speeds.problem == "b4 s4096 h32 d64 causal" and len(speeds.tflops) == 4
    assert speeds.tflops["default", "direct"] == 700
    points = {("a", "exact"): (1, 5), ("b", "exact"): (2, 4), ("c", "exact"): (3, 6), ("d", "exact"): (2, 7)}
    assert drawing.front(points) == [("b", "exact"), ("c", "exact")]
    kept = sorted((ROOT / "bench/results").glob("*-attention.json"))[-1]
    assert len(bench.read_speeds(kept, reader.read(made[0])).tflops) == 5


def test_flags_take_the_place_of_metadata(made, tmp_path, monkeypatch):
    out = tmp_path / "out.html"
    flags = ("--no-mask", "--softcap", "30", "--prefix", "layer01.", "--recipe", "block+e5m2", "--threads", "1")
    assert report(monkeypatch, made[0], "-o", out, *flags) == 0
    text = out.read_text()
    assert "1 layer, " in text and "no mask, softcap 30; recipe block+e5m2" in text
    assert "No speeds were given" in text and "octavo bench gpu --reps 20 --json attention.json" in text
    assert Page(text).rows["errors"][0] == ["recipe", "layer01"]


def test_zeros_and_long_names(tmp_path, monkeypatch):
    x = np.zeros((1, 5, 2, 64), np.float32)
    tensors = {f"model.<layers>.$3$.self_attention.{name}": x for name in "qkv"}
    source, out = save(tmp_path / "a&b.safetensors", tensors), tmp_path / "out.html"
    assert report(monkeypatch, source, "-o", out, "--png", tmp_path / "out.png") == 0
    page = Page(out.read_text())
    assert page.rows["errors"][0] == ["recipe", "model.<layers>.$3$.self_attention"]
    assert page.rows["errors"][1] == ["per_tensor", "0.00"]


def test_queries_and_keys_of_other_numbers(tmp_path, monkeypatch):
    q, k, v = qkv(b=1, sq=20, sk=70)
    source, out = save(tmp_path / "in.safetensors", {"q": q, "k": k, "v": v}), tmp_path / "out.html"
    assert report(monkeypatch, source, "-o", out, "--png", tmp_path / "out.png") == 0
    assert "Q and K have not the same number of tokens" in out.read_text()


def wrong_files():
    x = np.zeros((1, 4, 1, 64), np.float32)
    good = {"q": x, "k": x, "v": x}
    infinite = {**good, "k": np.full_like(x, np.inf)}
    both = {"octavo.window": "3,3", "causal": "true"}
    heads = {n: np.zeros((1, 4, h, 64), np.float32) for n, h in (("q", 2), ("k", 2), ("v", 1))}
    return {
        "empty": (b"", "IN is '{path}'; must be a safetensors file"),
        "long": (struct.pack("<Q", 2**40) + b"{}", "IN is '{path}'; must be a safetensors file"),
        "text": (struct.pack("<Q", 1) + b"{", "IN is '{path}'; must be a safetensors file, whose header is"),
        "only q": ({"q": x}, "IN is '{path}'; must be a file with q, k and v"),
        "infinite": (infinite, "tensor 'k' of {path} holds NaNs or infinities; must be finite"),
        "causal": ((good, {"causal": "yes"}), "metadata causal is 'yes'; must be 'true' or 'false'"),
        "layout": ((good, {"octavo.layout": "sbhd"}), "metadata octavo.layout is 'sbhd'; must be bshd or bhsd"),
        "softcap": ((good, {"octavo.softcap": "-1"}), "metadata octavo.softcap is '-1'; must be a positive number"),
        "window": ((good, {"octavo.window": "3"}), "metadata octavo.window is '3'; must be L,R"),
        "masks": ((good, both), "metadata causal is 'true'; must be 'false' beside octavo.window ('3,3')"),
        "heads": (heads, "v.shape[2] is 1; must equal k.shape[2] (2)"),
    }


@pytest.mark.parametrize("kind", wrong_files())
def test_wrong_files_end_in_a_sentence(tmp_path, monkeypatch, capsys, kind):
    path, out = tmp_path / "in.safetensors", tmp_path / "out.html"
    content, sentence = wrong_files()[kind]
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        save(path, *(content if isinstance(content, tuple) else (content,)))
    assert report(monkeypatch, path, "-o", out) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("octavo.report: ") and sentence.format(path=path) in last
    assert not out.exists()


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"dtype": "F8_E4M3"}, "the type of tensor 'q' in {path} is 'F8_E4M3'; must be one of F32, F16, BF16"),
        ({"shape": [4, 64]}, "the shape of tensor 'q' in {path} is [4, 64]; must be [b, s, h, d]"),
        ({"data_offsets": [0, 9]}, "data_offsets of tensor 'q' in {path} is [0, 9]; must be 1024 bytes apart"),
        ({"data_offsets": [1, 1025]}, "must be 1024 bytes apart, as its shape says, and within the file's 1024"),
        ({"shape": [-1, 64]}, "the entry of tensor 'q' in {path} is"),
        ({"data_offsets": None}, "the entry of tensor 'q' in {path} is"),
    ],
)
def test_wrong_tensors_end_in_a_sentence(tmp_path, entry, sentence):
    good = {"dtype": "F32", "shape": [1, 4, 1, 64], "data_offsets": [0, 1024]}
    text = json.dumps({"q": good | entry, "k": good, "v": good}).encode()
    path = tmp_path / "in.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(1024))
    with pytest.raises(ValueError, match=re.escape(sentence.format(path=path))):
        reader.read(path)


def test_wrong_flags_end_in_a_sentence(made, tmp_path, monkeypatch, capsys):
    source, out = made[0], tmp_path / "out.html"
    (tmp_path / "bench.json").write_text("[]")
    for flags, sentence in [
        (("-o", tmp_path / "absent" / "out.html"), "--output is "),
        (("-o", tmp_path), "must be a file, not a folder"),
        (("-o", source), f"must be another file than '{source}', which it would replace"),
        (("-o", out, "--png", out), "must be another file than the page"),
        (("-o", out, "--prefix", "x."), "--prefix is 'x.'; must be one of those in the file: 'layer00.', 'layer01.'"),
        (("-o", out, "--recipe", "fast"), "recipe is 'fast'; must be one of per_tensor"),
        (("-o", out, "--bench", tmp_path / "bench.json"), "must be the JSON of `octavo bench gpu --json`"),
        (("-o", out, "--key-lengths", "1,x"), "metadata octavo.key_lengths is 'x'"),
    ]:
        assert report(monkeypatch, source, *flags) == 2
        assert sentence in capsys.readouterr().err
        assert not out.exists()
    assert report(monkeypatch, tmp_path / "absent.safetensors", "-o", out) == 2
    assert "absent.safetensors" in capsys.readouterr().err


# The command line


def compare(*arguments, code=0, python=sys.executable, path=str(PACKAGE.parent)):
    command = Path(os.environ.get("OCTAVO_BIN", ROOT / "build/cpu/cli/octavo")).resolve()
    if not command.exists():
        pytest.skip("the command octavo is not built")
    environment = {**os.environ, "OCTAVO_PYTHON_EXE": str(python), "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [command, "compare", *map(str, arguments)], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def test_compare_writes_the_page(made, tmp_path):
    page, picture = tmp_path / "-out.html", tmp_path / "out.png"
    flags = ("--report", page, "--png", picture, "--no-mask", "--softcap", "30", "--prefix", "layer01.")
    done = compare(made[0], *flags)
    assert "rel L2 %" in done.stdout and f"{page} and {picture} written" in done.stderr
    assert "no mask, softcap 30; recipe default" in page.read_text() and picture.stat().st_size > 10_000


def test_compare_says_how_to_install(made, tmp_path):
    page = tmp_path / "out.html"
    (tmp_path / "octavo").mkdir()  # a package of that name without a report
    (tmp_path / "octavo/__init__.py").touch()
    done = compare(made[0], "--report", page, code=1, path=str(tmp_path))
    assert "rel L2 %" in done.stdout
    sentence = 'ended with exit code 1; it needs Octavo\'s Python package with matplotlib: pip install ".[report]"'
    assert sentence in done.stderr
    done = compare(made[0], "--report", page, code=1, python=tmp_path / "absent")
    assert "did not start (No such file or directory); it needs" in done.stderr
    assert not page.exists()


def test_compare_refuses_outputs_that_make_no_sense(made, tmp_path):
    done = compare(made[0], "--png", tmp_path / "out.png", code=2)
    assert "--png is " in done.stderr and "must be left out without --report" in done.stderr
    done = compare(made[0], "--report", made[0], code=2)
    assert "must be another file than IN" in done.stderr
    done = compare(made[0], "--report", tmp_path / "absent" / "out.html", code=1)
    assert "must be in a folder that exists" in done.stderr and "refused: see above" in done.stderr


def test_types():
    """The package under mypy --strict."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    files = sorted((ROOT / "python/octavo/report").glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", PACKAGE.parent / ".mypy_cache", *files],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), "MYPYPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
