# SPDX-License-Identifier: Apache-2.0
"""The octavo command itself: damaged input, refusals, help, verify, bench, info."""

import json
import struct

import numpy as np
import pytest
from cli_support import ROOT, octavo, refused
from safetensors.numpy import save_file

COMMANDS = ["attend", "compare", "quantize", "gen", "verify", "bench", "info"]

# damaged input


def damaged_files():
    data = bytes(4 * 64)
    tensor = {"dtype": "F32", "shape": [1, 1, 1, 64], "data_offsets": [0, 256]}
    good = {"q": tensor, "k": tensor, "v": tensor}

    def file(header, body=data):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + body

    return {
        "empty": b"",
        "short": b"\x08\x00",
        "header beyond the file": struct.pack("<Q", 2**40) + b"{}",
        "no JSON": file(b"{"),
        "truncated": file(good)[:-1],
        "out of range": file({**good, "q": {**tensor, "data_offsets": [0, 257]}}),
        "wrong size": file({**good, "q": {**tensor, "shape": [1, 1, 1, 65]}}),
        "unknown dtype": file({**good, "q": {**tensor, "dtype": "Q4"}}),
        "negative": file({**good, "q": {**tensor, "shape": [-1, 1, 1, 64]}}),
        "overflow": file({**good, "q": {**tensor, "shape": [2**40, 2**40, 2**40, 64]}}),
        "no tensors": file({}, b""),
        "only q": file({"q": tensor}),
    }


@pytest.mark.parametrize("kind", damaged_files())
@pytest.mark.parametrize("command", ["attend", "quantize", "compare"])
def test_damaged_files_end_in_a_sentence(tmp_path, kind, command):
    source, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    source.write_bytes(damaged_files()[kind])
    target.write_text("what was here before")
    output = [] if command == "compare" else ["-o", target]
    assert str(source) in refused(command, source, *output)
    assert target.read_text() == "what was here before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.safetensors", "out.safetensors"]


def test_a_failing_call_leaves_no_file(qkv, tmp_path):
    target = tmp_path / "out.safetensors"
    for flags in (
        ["--scale", "-1"],
        ["--window", "3"],
        ["--recipe", "fast"],
        ["--engine", "tpu"],
        ["--engine", "sm90"],
        ["--out-dtype", "f8_e4m3"],
        ["--key-lengths", "300,1"],
        ["--key-lengths", "1"],
        ["--layout", "bhsd"],
        ["--promote", "0"],
        ["--softmax", "fast"],
        ["--softmax", "direct", "--engine", "emulate", "--recipe", "strict_causal"],
    ):
        refused("attend", qkv, "-o", target, *flags)
        assert not target.exists(), flags
    refused("attend", qkv, "-o", tmp_path / "absent" / "out.safetensors")
    refused("gen", "-o", target, "s8 q9")
    assert not target.exists()
    assert "metadata causal is 'yes'" in refused_with_metadata(tmp_path, {"causal": "yes"})
    assert "metadata octavo.layout" in refused_with_metadata(tmp_path, {"octavo.layout": "sbhd"})


def refused_with_metadata(tmp_path, meta):
    source = tmp_path / "meta.safetensors"
    save_file({n: np.zeros((1, 4, 1, 64), np.float32) for n in "qkv"}, source, meta)
    return refused("attend", source, "-o", tmp_path / "out.safetensors")


# verify


@pytest.mark.parametrize("file", sorted((ROOT / "tests/problems").glob("*.txt")), ids=lambda p: p.stem)
def test_problem_files_pass(file):
    done = octavo("verify", "--file", file)
    lines = done.stdout.splitlines()
    assert lines[-1] == f"{len(lines) - 1} passed, 0 failed"


def test_verify_random_problems():
    done = octavo("verify", "--random", "40", "--seed", "2")
    assert done.stdout.splitlines()[-1] == "40 passed, 0 failed"
    again = octavo("verify", "--random", "3", "--seed", "2")
    assert again.stdout.splitlines()[:3] == done.stdout.splitlines()[:3]


def test_verify_an_engine_against_itself():
    done = octavo("verify", "s300 h3 d64 causal", "--engine", "emulate", "--against", "emulate")
    assert done.stdout.splitlines() == ["ok      s300 h3 d64 causal: bit-equal", "1 passed, 0 failed"]


def test_verify_prints_what_repeats_a_failure():
    # At 500 times the usual softmax scale, rounding decides which key wins a row.
    done = octavo("verify", "s64", "sq64 sk64 scale=50", code=1)
    ok, failed, repeat, total = done.stdout.splitlines()
    assert ok.startswith("ok      s64: rel L2 ")
    assert failed.startswith("FAILED  s64 scale=50: the worst row's cosine is ")
    assert total == "1 passed, 1 failed"
    assert repeat.strip() == 'octavo verify "s64 scale=50" --engine emulate --against reference'
    again = octavo("verify", "s64 scale=50", "--engine", "emulate", "--against", "reference", code=1)
    assert again.stdout.splitlines() == [failed, repeat, "0 passed, 1 failed"]


def test_verify_needs_problems(tmp_path):
    assert "no problem is given" in refused("verify")
    problems = tmp_path / "problems.txt"
    problems.write_text("s3\ns3 s4\n")
    assert f"{problems}:2: problem: token 's4' sets sq again" in refused("verify", "--file", problems)


# bench, info


def test_bench_figures():
    done = octavo("bench", "s256 h2 d64", "s256 h2 d64 causal acc=fp32", "--reps", "3", "--json", "-")
    full, causal = json.loads(done.stdout)["results"]
    assert full["flop"] == 4 * 2 * 64 * 256**2
    assert causal["flop"] == 4 * 2 * 64 * (256 * 257 // 2)
    for result in (full, causal):
        assert result["engine"] == "emulate" and result["reps"] == 3
        assert sorted(result["seconds"])[1] == result["seconds_median"]
        assert result["seconds_min"] == min(result["seconds"])
        assert result["gflops"] == pytest.approx(result["flop"] / result["seconds_median"] / 1e9)
        assert result["peak_rss_bytes"] > 2**20
    table = octavo("bench", "s64 d64", "--reps", "1", "--engine", "reference").stdout
    assert "GFLOP/s" in table and "reference" in table


def test_info():
    text = octavo("info").stdout
    for word in ("octavo 0.", "FP8 tensor-core", "SIMD", "sm90, emulate, reference", "head dim 128"):
        assert word in text
    verdict = octavo("info", "s64 softmax=direct recipe=strict_causal").stdout
    assert "declines" in verdict and '"auto" runs reference.' in verdict
    assert '"auto" runs emulate.' in octavo("info", "b2 s64 hq4 hkv2 in=f8 layout=bhsd").stdout
    assert "q.shape[3] is 576" in refused("info", "s64 d576 dv512")


# the command itself


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command):
    text = octavo(command, "--help").stdout
    assert f"Usage: octavo {command}" in text
    assert f"Examples:\n  octavo {command}" in text
    assert max(map(len, text.splitlines())) <= 100


def test_help_and_version():
    text = octavo("--help").stdout
    assert all(f"\n  {command} " in text for command in COMMANDS)
    assert octavo("--version").stdout.startswith("octavo 0.")


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_flags_are_refused(command):
    assert f"octavo {command} --help" in refused(command, "--fast")


def test_wrong_commands_are_refused():
    assert "'attent' is no command; must be one of attend" in refused("attent")
    refused()
    refused("--fast")
    assert "--threads: value is 'x'" in refused("bench", "s8", "--threads", "x")
    assert "--causal excludes --no-mask" in refused("compare", "x", "--causal", "--no-mask")
