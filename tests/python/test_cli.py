# SPDX-License-Identifier: Apache-2.0
"""The octavo command itself: damaged input, refusals, help, verify, bench, info."""

import json
import re
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
        ["--splits", "0"],
        ["--splits", "65"],
        ["--softmax", "fast"],
        ["--softmax", "direct", "--engine", "emulate", "--recipe", "strict_causal"],
    ):
        refused("attend", qkv, "-o", target, *flags)
        assert not target.exists(), flags
    refused("attend", qkv, "-o", tmp_path / "absent" / "out.safetensors")
    refused("gen", "-o", target, "s8 q9")
    assert not target.exists()
    pair = {"causal": "true", "octavo.window": "3,0"}
    assert "metadata causal is 'true'; must be 'false' beside octavo.window ('3,0')" in (
        refused_with_metadata(tmp_path, pair)
    )
    assert "metadata causal is 'yes'" in refused_with_metadata(tmp_path, {"causal": "yes"})
    assert "metadata octavo.layout" in refused_with_metadata(tmp_path, {"octavo.layout": "sbhd"})


def refused_with_metadata(tmp_path, meta):
    source = tmp_path / "meta.safetensors"
    save_file({n: np.zeros((1, 4, 1, 64), np.float32) for n in "qkv"}, source, meta)
    return refused("attend", source, "-o", tmp_path / "out.safetensors")


@pytest.mark.parametrize("link", ["itself", "symlink", "hardlink"])
@pytest.mark.parametrize("command", ["attend", "quantize", "compare"])
def test_the_input_is_never_replaced(qkv, tmp_path, command, link):
    target = tmp_path / "out.safetensors" if link != "itself" else qkv
    if link == "symlink":
        target.symlink_to(qkv)
    elif link == "hardlink":
        target.hardlink_to(qkv)
    before = qkv.read_bytes()
    flag = "--json" if command == "compare" else "-o"
    sentence = refused(command, qkv, flag, target)
    assert f"{flag} is '{target}'; must be another file than IN ('{qkv}')" in sentence
    assert qkv.read_bytes() == before


def test_output_types_are_those_of_the_flag(qkv, tmp_path):
    sentence = refused("attend", qkv, "-o", tmp_path / "out.safetensors", "--out-dtype", "f8_e4m3")
    assert sentence.endswith("--out-dtype is 'f8_e4m3'; must be one of f32, f16, bf16")


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("s8 d7", "q.shape[3] is 7; must be a multiple of 8"),
        ("s8 d264", "q.shape[3] is 264; must be a multiple of 8"),
        ("s8 hq3 hkv2", "q.shape[2] is 3; must be a multiple of k.shape[2] (2)"),
        ("s8 lens=9", "key_lengths[0] is 9; must be from 0 to k.shape[1] (8)"),
        ("s8 recipe=block", "recipe is 'block'; must be left out"),
        ("s8 precision=bf16", "precision is 'bf16'; must be left out"),
        ("s8 softmax=direct", "softmax is 'direct'; must be left out"),
        ("s8 acc=fp32", "acc is 'fp32'; must be left out"),
        ("s8 promote=none", "promote is 'none'; must be left out"),
        ("s8 splits=2", "splits is '2'; must be left out"),
        ("s8 out=f32", "out is 'f32'; must be left out"),
        ("s8 layout=packed", "layout is 'packed'; must be bshd or bhsd"),
    ],
)
def test_gen_refuses_what_makes_no_file(tmp_path, line, sentence):
    target = tmp_path / "out.safetensors"
    assert sentence in refused("gen", "-o", target, line)
    assert not target.exists()


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


@pytest.mark.parametrize("line", ["s300 h3 d64 causal", "s300 h3 d64 causal splits=3"])
def test_verify_an_engine_against_itself(line):
    done = octavo("verify", line, "--engine", "emulate", "--against", "emulate")
    assert done.stdout.splitlines() == [
        f"ok      {line}: bit-equal on one thread and on several",
        "1 passed, 0 failed",
    ]


@pytest.mark.parametrize(
    "engine, against", [("reference", "reference"), ("auto", "auto"), ("auto", "emulate")]
)
def test_verify_refuses_what_would_pass_whatever_it_computes(engine, against):
    sentence = refused("verify", "s8 d64", "--engine", engine, "--against", against)
    assert f"engine is '{engine}' and against is '{against}', and both run " in sentence
    one = ("--engine", "emulate", "--against", "emulate", "--threads", "1")
    assert "threads is 1; must be another number" in refused("verify", "s8 d64", *one)


def test_the_reference_never_stands_in_for_fp8():
    for command in (["verify"], ["bench", "--reps", "1"]):
        sentence = refused(*command, "s128 recipe=strict_causal softmax=direct", "--engine", "auto")
        assert "emulate: softmax is direct; must be exact where v has a descale per token" in sentence


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
    assert "--rope is 'zz'; must be left out" in refused("bench", "s64", "--rope", "zz")
    assert "--rope is 'half'; must be left out" in refused("bench", "gpu", "s64", "--rope", "half")
    assert "--engine is 'emulate'; must be sm90" in refused("bench", "gpu", "s64", "--engine", "emulate")
    assert "--rope is 'zz'; must be none" in refused("bench", "quantize", "s64", "--rope", "zz")
    table = octavo("bench", "s64 d64", "--reps", "1", "--engine", "reference").stdout
    assert "GFLOP/s" in table and "reference" in table


def test_info():
    text = octavo("info").stdout
    for word in ("octavo 0.", "FP8 tensor-core", "SIMD", "sm90, emulate, reference", "head dim 128"):
        assert word in text
    verdict = octavo("info", "s64 softmax=direct recipe=strict_causal").stdout
    assert "declines" in verdict and '"auto" runs none.' in verdict
    assert '"auto" runs emulate.' in octavo("info", "b2 s64 hq4 hkv2 in=f8 layout=bhsd").stdout
    assert "q.shape[3] is 576" in refused("info", "s64 d576 dv512")


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        ("s1024 precision=bf16", "pair_bf16"),
        ("s896 precision=bf16", "plain_bf16"),  # 7 tiles of 128 rows
        ("s897 d256 precision=fp16", "pair_fp16"),  # 8 tiles
        ("sq200 sk64 d192 dv128 precision=bf16 lens=30", "pair_bf16"),
        ("s1024 d256 softmax=direct", "direct_pair_int8"),
        ("s1024 d256 recipe=block softmax=direct", "direct_pair"),
        ("s1024 d256 recipe=block softmax=direct causal", "direct"),
        ("s1024 d256 recipe=block", "pair"),
        ("s896 d256", "plain_int8"),
        ("s1024 softmax=direct", "direct_int8"),
        ("s1024 causal precision=bf16", "plain_bf16"),
        ("s1024 window=300,0 precision=bf16", "plain_bf16"),
        ("s1024 d64 precision=bf16", "plain_bf16"),
        ("s1024 softcap=20 precision=bf16", "general_bf16"),
    ],
)
def test_info_names_the_kernel(problem, kernel):
    text = octavo("info", problem).stdout
    if "with CUDA" not in octavo("info").stdout:
        assert "sm90 kernel: none" in text
    else:
        assert re.search(rf"^sm90 kernel: d\d+ dv\d+ {kernel}: ", text, re.MULTILINE)


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
