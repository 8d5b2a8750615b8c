# SPDX-License-Identifier: Apache-2.0
"""The Python package among threads and processes; memory, pickles, types, the examples."""

import ast
import gc
import importlib.util
import inspect
import multiprocessing
import os
import pickle
import re
import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from cli_support import ROOT
from octavo_support import octavo, qkv, same_bits

PACKAGE = Path(octavo.__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}


def test_threads_of_python_call_at_once():
    problems = [qkv(sq=16 + i, seed=i) for i in range(8)]
    want = [octavo.attention(*x) for x in problems]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for got, expected in zip(pool.map(lambda x: octavo.attention(*x), problems), want, strict=True):
                assert same_bits(got, expected)


@pytest.mark.parametrize("function", [octavo.attention, octavo.quantize])
def test_other_threads_run_during_a_call(function):
    operands = qkv(b=1, sq=3000, sk=3000, hq=8, hkv=8)
    beats, done = [], threading.Event()

    def beat():
        while not done.is_set():
            beats.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=beat)
    thread.start()
    start = time.monotonic()
    function(*operands, threads=1)
    end = time.monotonic()
    done.set()
    thread.join()
    assert sum(start < x < end for x in beats) > 3


def test_memory_does_not_grow():
    q, k, v = qkv(b=1, sq=16, sk=32)
    out = np.empty_like(q)

    def calls(n):
        for _ in range(n):
            octavo.attention(q, k, v, threads=1)
            octavo.attention_quantized(octavo.quantize(q, k, v, threads=1), out=out, return_lse=True, threads=1)
            with pytest.raises(ValueError):
                octavo.attention(q, k, v, num_splits=0)
        gc.collect()
        return resident()

    before = calls(200)
    # One leaked array of 16 KiB a call would be 32 MiB, one object of 512 bytes 1 MiB.
    assert calls(2000) - before < 1 << 20


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_references_are_given_back():
    q, k, v = qkv()
    quantized = octavo.quantize(q, k, v)
    counts = [sys.getrefcount(x) for x in (q, k, v)]
    octavo.attention(q, k, v)
    octavo.attention_quantized(quantized)
    with pytest.raises(ValueError):
        octavo.attention(q, k, v[0])
    assert [sys.getrefcount(x) for x in (q, k, v)] == counts


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_pickles(protocol, layout):
    quantized = octavo.quantize(*(x if layout == "bshd" else x.swapaxes(1, 2) for x in qkv()), layout=layout)
    again = pickle.loads(pickle.dumps(quantized, protocol))
    assert (again.recipe, again.head_dim, again.layout) == ("default", 64, layout)
    assert again.q.dtype == "i8" and again.v.dtype == "f8_e4m3"
    assert same_bits(octavo.attention_quantized(again), octavo.attention_quantized(quantized))


def attend_in_child(seed):
    return octavo.attention(*qkv(seed=seed), causal=True)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_processes(method, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PACKAGE.parent), str(Path(__file__).parent)]))
    want = [attend_in_child(seed) for seed in range(3)]  # the parent has computed before it forks
    with multiprocessing.get_context(method).Pool(2) as pool:
        for got, expected in zip(pool.map(attend_in_child, range(3)), want, strict=True):
            assert same_bits(got, expected)


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("first_call", ["default        relative error ", "out bfloat16 [1, 512, 8, 64]"]),
        ("choosing_a_recipe", ["normal: default is best", "offset keys: default is best", "outliers: "]),
    ],
)
def test_examples(name, sentences):
    script = ROOT / f"examples/python/{name}.py"
    done = subprocess.run([sys.executable, script], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(sentence in done.stdout for sentence in sentences), done.stdout


def needs(files, module):
    return any(re.search(rf"^ *(import|from) {module}\b", file.read_text(), re.MULTILINE) for file in files)


def test_types():
    """The examples and the package under mypy --strict; what needs packages of extras where those are."""
    mypy = pytest.importorskip("mypy", reason="mypy is not installed")
    assert mypy
    alone = [[file] for folder in ("examples/python", "python/octavo") for file in sorted((ROOT / folder).glob("*.py"))]
    together = [sorted((ROOT / "python/octavo" / name).glob("*.py")) for name in ("torch", "eval", "report")]
    missing = [m for m in ("torch", "transformers", "gguf", "matplotlib", "tqdm") if not importlib.util.find_spec(m)]
    files = [file for group in alone + together if not any(needs(group, m) for m in missing) for file in group]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", PACKAGE.parent / ".mypy_cache", *files],
        env={**ENVIRONMENT, "MYPYPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def stub_signatures():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    return [(x.name, x.args) for x in tree.body if isinstance(x, ast.FunctionDef)]


@pytest.mark.parametrize(("name", "stub"), stub_signatures(), ids=lambda x: x if isinstance(x, str) else "")
def test_the_stub_has_the_arguments_of_the_code(name, stub):
    parameters = inspect.signature(getattr(octavo, name)).parameters.values()
    assert [x.arg for x in stub.args + stub.kwonlyargs] == [x.name for x in parameters]
    for given, parameter in zip(stub.kw_defaults, [x for x in parameters if x.kind == x.KEYWORD_ONLY], strict=True):
        if given is None:
            assert parameter.name == "return_lse"  # required in the overload with Literal[True]
        else:
            assert ast.literal_eval(given) == parameter.default
    assert (PACKAGE / "py.typed").exists()


def test_every_public_name_says_what_it_does():
    for name in octavo.__all__:
        assert len(inspect.getdoc(getattr(octavo, name))) > 100
