# SPDX-License-Identifier: Apache-2.0
"""Figures and files of the octavo command, held against numpy and the safetensors package."""

import json
import math

import ml_dtypes
import numpy as np
import pytest
from cli_support import RECIPES, attention, load, metadata, octavo, refused, relative_l2
from safetensors.numpy import save_file

# gen


def splitmix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def normal(seed, stream, index):
    """N(0, 1) as docs and rng.h define it, in Python's own arithmetic."""
    step = 0x9E3779B97F4A7C15
    start = splitmix(splitmix((seed + step) % 2**64) ^ (stream * step % 2**64))
    word = splitmix((start + (index + 1) * step) % 2**64)
    radius = math.sqrt(-2 * math.log(((word >> 32) + 0.5) / 2**32))
    return radius * math.cos(2 * math.pi * (word % 2**32) / 2**32)


def test_gen_follows_its_definition(tmp_path):
    path = tmp_path / "a.safetensors"
    octavo("gen", "-o", path, "b2 sq3 sk5 hq2 hkv1 d16 in=f32 seed=11")
    tensors = load(path)
    assert {n: x.shape for n, x in tensors.items()} == {
        "q": (2, 3, 2, 16),
        "k": (2, 5, 1, 16),
        "v": (2, 5, 1, 16),
    }
    for stream, name in enumerate("qkv"):
        want = [normal(11, stream, i) for i in range(tensors[name].size)]
        # The logarithm and cosine of Python may differ from octavo's in the last place of a double.
        np.testing.assert_allclose(tensors[name].ravel(), np.float32(want), rtol=1e-6, atol=1e-9)


def test_gen_says_what_the_problem_was(tmp_path):
    path = tmp_path / "a.safetensors"
    octavo("gen", "-o", path, "s8 window=3,all scale=0.5 softcap=20 lens=7 layout=bhsd h2")
    meta = metadata(path)
    assert meta["octavo.problem"] == "s8 h2 window=3,all lens=7 scale=0.5 softcap=20 layout=bhsd"
    assert meta["causal"] == "false"
    assert meta["octavo.window"] == "3,all"
    assert meta["octavo.layout"] == "bhsd"
    assert load(path)["q"].shape == (1, 2, 8, 128)


# attend


@pytest.mark.parametrize(
    "line, call",
    [
        ("s65 h2 d64", {}),
        ("b2 sq130 sk257 hq4 hkv2 d64 causal", {"causal": True}),
        ("sq64 sk300 d72 window=40,3 in=f16", {"window": (40, 3)}),
        ("b3 sq33 sk129 h2 d64 lens=129,0,17 in=f32", {"lengths": [129, 0, 17]}),
        ("s129 h2 d64 dv96 softcap=4 scale=0.3", {"softcap": 4, "scale": 0.3}),
        ("sq9 sk5 d64 causal", {"causal": True}),
    ],
)
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_attend_against_numpy(tmp_path, line, call, layout):
    source, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    octavo("gen", "-o", source, f"{line} layout={layout}")
    operands = load(source)
    if layout == "bhsd":
        operands = {name: x.swapaxes(1, 2) for name, x in operands.items()}
    want, want_lse = attention(operands["q"], operands["k"], operands["v"], **call)
    for engine, low, high, lse_error in (("reference", 0, 1e-6, 1e-5), ("emulate", 0.01, 0.1, 0.3)):
        octavo("attend", source, "-o", target, "--lse", "--engine", engine, "--out-dtype", "f32")
        got = load(target)
        out = got["out"] if layout == "bshd" else got["out"].swapaxes(1, 2)
        assert low <= relative_l2(out, want) <= high
        assert np.array_equal(np.isneginf(got["lse"]), np.isneginf(want_lse))
        seen = np.isfinite(want_lse)
        assert np.abs(got["lse"][seen] - want_lse[seen]).max() <= lse_error
        assert metadata(target)["octavo.engine"] == engine


def test_attend_reads_files_of_others(tmp_path):
    rng = np.random.default_rng(0)
    source, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    x = {n: rng.standard_normal((70, 2, 64)).astype(ml_dtypes.bfloat16) for n in "qkv"}
    meta = {"layout": "free text", "causal": "true"}
    save_file({f"model.0.{n}": t for n, t in x.items()}, source, meta)
    octavo("attend", source, "-o", target)
    out = load(target)["out"]
    assert out.shape == (70, 2, 64)  # rank 3 is a batch of 1, in and out
    assert out.dtype == ml_dtypes.bfloat16
    want, _ = attention(*(x[n][None] for n in "qkv"), causal=True)
    assert 0.01 < relative_l2(out[None], want) < 0.1


def test_flags_override_the_file(qkv, tmp_path):
    operands = load(qkv)
    target = tmp_path / "out.safetensors"
    for flags, call in (
        ([], {"causal": True}),
        (["--no-mask"], {}),
        (["--window", "20,all"], {"window": (20, math.inf)}),
        (["--key-lengths", "257,31"], {"causal": True, "lengths": [257, 31]}),
        (["--scale", "0.5"], {"causal": True, "scale": 0.5}),
        (["--softcap", "3"], {"causal": True, "softcap": 3}),
    ):
        octavo("attend", qkv, "-o", target, "--engine", "reference", "--out-dtype", "f32", *flags)
        want, _ = attention(operands["q"], operands["k"], operands["v"], **call)
        assert relative_l2(load(target)["out"], want) < 1e-6, flags


def test_attend_says_which_engine_ran(qkv, tmp_path):
    target = tmp_path / "out.safetensors"
    assert "emulate ran (first to accept" in octavo("attend", qkv, "-o", target).stderr
    verbose = octavo("attend", qkv, "-o", target, env={"OCTAVO_VERBOSE": "dispatch"})
    assert "octavo dispatch: " in verbose.stderr
    unknown = octavo("attend", qkv, "-o", target, env={"OCTAVO_VERBOSE": "zz"})
    assert unknown.stderr.count("OCTAVO_VERBOSE is 'zz'; must be dispatch, or unset") == 1


def test_metadata_of_the_output_says_what_applied(qkv, tmp_path):
    target = tmp_path / "out.safetensors"
    names = ("precision", "recipe", "softmax", "accumulator", "promote", "splits")
    numerics = {f"octavo.{name}" for name in names}
    octavo("attend", qkv, "-o", target, "--recipe", "block")
    assert numerics <= set(metadata(target))
    assert metadata(target)["octavo.splits"] == "1"
    octavo("attend", qkv, "-o", target, "--recipe", "block", "--engine", "reference")
    assert not numerics & set(metadata(target))


@pytest.mark.parametrize(
    "precision, dtype, low, high",
    # The rounding of P: 0.42 * 2^-8 and 0.42 * 2^-11 in the mean square, less where few keys count.
    [("bf16", "bf16", 6e-4, 2.2e-3), ("fp16", "f16", 8e-5, 2.8e-4)],
)
def test_16_bits_as_they_are(tmp_path, precision, dtype, low, high):
    source, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    octavo("gen", "-o", source, f"b2 sq130 sk257 hq4 hkv2 d64 causal in={dtype}")
    operands = load(source)
    want, want_lse = attention(operands["q"], operands["k"], operands["v"], causal=True)
    call = ("attend", source, "-o", target, "--lse", "--out-dtype", "f32")
    octavo(*call, "--precision", precision)
    got = load(target)
    assert low <= relative_l2(got["out"], want) <= high
    assert np.abs(got["lse"] - want_lse).max() <= 1e-5
    said = metadata(target)
    assert said["octavo.precision"] == precision
    assert not {"octavo.softmax", "octavo.accumulator", "octavo.promote"} & set(said)
    other = "fp16" if precision == "bf16" else "bf16"
    sentence = refused(*call, "--precision", other)
    assert f"q.dtype is {dtype}; must be" in sentence and f"where precision is {other}" in sentence
    sentence = refused(*call, "--precision", precision, "--recipe", "block")
    assert f"recipe is block; must be left out where precision is {precision}" in sentence
    assert "must be fp8, bf16, fp16 or auto" in refused(*call, "--precision", "f16")


def test_split_keys_against_numpy(qkv, tmp_path):
    operands = load(qkv)
    want, want_lse = attention(operands["q"], operands["k"], operands["v"], causal=True)
    outs = {}
    for splits in (1, 2, 3, 64):
        target = tmp_path / f"{splits}.safetensors"
        octavo("attend", qkv, "-o", target, "--lse", "--out-dtype", "f32", "--splits", splits)
        assert metadata(target)["octavo.splits"] == str(splits)
        outs[splits] = load(target)
        assert 0.01 < relative_l2(outs[splits]["out"], want) < 0.1
        assert np.abs(outs[splits]["lse"] - want_lse).max() < 0.3
    whole = tmp_path / "whole.safetensors"
    octavo("attend", qkv, "-o", whole, "--lse", "--out-dtype", "f32")
    assert load(whole)["out"].tobytes() == outs[1]["out"].tobytes()
    # 257 keys are 3 key tiles: one a split, and no more.
    assert not np.array_equal(outs[2]["out"], outs[1]["out"])
    assert outs[64]["out"].tobytes() == outs[3]["out"].tobytes()
    assert outs[64]["lse"].tobytes() == outs[3]["lse"].tobytes()


def test_prefixes(tmp_path):
    rng = np.random.default_rng(0)
    source, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    tensors = {
        f"layer{i}.{n}": rng.standard_normal((1, 20, 1, 64)).astype(np.float32)
        for i in range(2)
        for n in "qkv"
    }
    save_file(tensors, source)
    sentence = refused("attend", source, "-o", target)
    assert "--prefix is left out; must be one of those in the file: layer0., layer1." in sentence
    plain = tmp_path / "plain.safetensors"
    save_file({n: tensors[f"layer0.{n}"] for n in "qkv"}, plain)
    sentence = refused("attend", plain, "-o", target, "--prefix", "layer0.")
    assert "must be left out: q, k and v of this file have no prefix" in sentence
    assert "--prefix is 'x'" in refused("attend", source, "-o", target, "--prefix", "x")
    octavo("attend", source, "-o", target, "--prefix", "layer1.", "--out-dtype", "f32")
    want, _ = attention(*(tensors[f"layer1.{n}"] for n in "qkv"))
    assert relative_l2(load(target)["out"], want) < 0.1
    figures = json.loads(octavo("compare", source, "--json", "-").stdout)
    assert [group["prefix"] for group in figures["groups"]] == ["layer0.", "layer1."]


# quantize


@pytest.mark.parametrize("recipe", RECIPES + ["block+rotate+e5m2", "per_head+smooth"])
@pytest.mark.parametrize(
    "line", ["b2 sq130 sk257 hq4 hkv2 d64 causal", "b2 s70 h2 d72 lens=70,9 layout=bhsd in=f16"]
)
def test_attention_on_quantized_files_is_bit_equal(tmp_path, recipe, line):
    source, codes = tmp_path / "in.safetensors", tmp_path / "codes.safetensors"
    direct, twice = tmp_path / "direct.safetensors", tmp_path / "twice.safetensors"
    octavo("gen", "-o", source, line)
    octavo("quantize", source, "-o", codes, "--recipe", recipe)
    assert metadata(codes)["octavo.recipe"] == recipe
    assert metadata(codes)["octavo.source"] == str(source)
    octavo("attend", source, "-o", direct, "--lse", "--out-dtype", "f32", "--recipe", recipe)
    octavo("attend", codes, "-o", twice, "--lse", "--out-dtype", "f32")
    a, b = load(direct), load(twice)
    assert a["out"].tobytes() == b["out"].tobytes()
    assert a["lse"].tobytes() == b["lse"].tobytes()


def test_quantized_files_hold_what_they_say(qkv, tmp_path):
    codes = tmp_path / "codes.safetensors"
    octavo("quantize", qkv, "-o", codes, "--recipe", "block")
    source, x = load(qkv), load(codes)
    assert x["q"].dtype == ml_dtypes.float8_e4m3fn
    assert "score_shift" not in x
    for name, rows in (("q", 64), ("k", 128), ("v", 128)):
        descale = x[name + "_descale"]
        b, s, h, _ = source[name].shape
        assert descale.shape == (b, h, -(-s // rows))
        scale = np.repeat(descale, rows, axis=2)[:, :, :s].transpose(0, 2, 1)[..., None]
        back = x[name].astype(np.float64) * scale
        want = source[name].astype(np.float64)
        # Half a step of a 3-bit mantissa, or of the subnormals' grid.
        assert np.all(np.abs(back - want) <= np.abs(want) / 15 + scale * 2.0**-10)
        assert np.abs(x[name].astype(np.float32)).max() == 448


def test_a_missing_descale_is_refused(qkv, tmp_path):
    codes, target = tmp_path / "codes.safetensors", tmp_path / "out.safetensors"
    octavo("quantize", qkv, "-o", codes)
    codes.write_bytes(codes.read_bytes().replace(b"k_descale", b"x_descale"))
    assert "k_descale is missing" in refused("attend", codes, "-o", target)
    assert not target.exists()


# compare


def test_compare_agrees_with_numpy(qkv, tmp_path):
    figures = json.loads(octavo("compare", qkv, "--json", "-").stdout)
    assert set(figures) == {"octavo", "file", "engine", "engine_note", "groups"}
    assert figures["engine"] == "emulate"
    (group,) = figures["groups"]
    assert group["shape"] == "b2 sq130 sk257 hq4 hkv2 d64 dv64"
    assert group["call"] == "causal"
    variants = group["variants"]
    assert [v["recipe"] for v in variants[: len(RECIPES)]] == RECIPES
    assert {(v["softmax"], v["accumulator"], v["promote"]) for v in variants} == {
        (softmax, accumulator, promote)
        for softmax in ("exact", "direct")
        for accumulator, promote in (("hopper", 1), ("hopper", 0), ("fp32", 1))
    }
    operands = load(qkv)
    want, want_lse = attention(operands["q"], operands["k"], operands["v"], causal=True)
    assert group["reference_rms"] == pytest.approx(np.sqrt(np.mean(want**2)), rel=1e-6)
    target = tmp_path / "out.safetensors"
    for v in variants:
        octavo(
            "attend", qkv, "-o", target, "--lse", "--out-dtype", "f32", "--recipe", v["recipe"],
            "--softmax", v["softmax"], "--accumulator", v["accumulator"],
            "--promote", v["promote"] or "none",
        )  # fmt: skip
        got = load(target)
        out = got["out"].astype(np.float64)
        error = out - want
        assert v["relative_l2"] == pytest.approx(relative_l2(out, want), rel=1e-4)
        assert v["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)
        assert v["max_abs"] == pytest.approx(np.abs(error).max(), rel=1e-4)
        cosine = (out * want).sum() / np.linalg.norm(out) / np.linalg.norm(want)
        assert v["cosine"] == pytest.approx(cosine, rel=1e-9)
        assert v["snr_db"] == pytest.approx(-20 * math.log10(relative_l2(out, want)), rel=1e-4)
        assert v["zeros"] == pytest.approx(np.mean(out == 0))
        assert v["lse_max_abs"] == pytest.approx(np.abs(got["lse"] - want_lse).max(), rel=1e-3)
        assert v["masks_agree"] is True and v["nan"] == 0 and v["inf"] == 0
        assert v["casts"]["v"]["total"] == operands["v"].size
    by_recipe = {v["recipe"]: v["relative_l2"] for v in reversed(variants[: len(RECIPES)])}
    assert group["least_error"] == min(by_recipe, key=by_recipe.get)


def test_compare_prints_tables_and_writes_json(qkv, tmp_path):
    target = tmp_path / "figures.json"
    done = octavo("compare", qkv, "--json", target, "--all")
    assert done.stderr == ""  # no progress bar where stderr is no terminal
    for word in (*RECIPES, "rel L2 %", "unpromoted", "Engine: emulate", "Try next:"):
        assert word in done.stdout
    (group,) = json.loads(target.read_text())["groups"]
    assert len(group["variants"]) == len(RECIPES) * 6
    declined = [v for v in group["variants"] if "declined" in v]
    assert {(v["recipe"], v["softmax"]) for v in declined} == {("strict_causal", "direct")}


def test_compare_expects_nans_of_the_input_to_spread(tmp_path):
    rng = np.random.default_rng(0)
    source = tmp_path / "in.safetensors"
    x = {n: rng.standard_normal((1, 200, 1, 64)).astype(np.float32) for n in "qkv"}
    x["v"][0, 150, 0, 3] = np.nan
    x["k"][0, 10, 0, 0] = np.inf
    save_file(x, source, {"causal": "true"})
    done = octavo("compare", source)
    (line,) = done.stderr.splitlines()
    assert line.startswith("octavo: q, k and v hold 2 NaNs or infinities: expected")
    assert "docs/data_path.md" in line


def test_compare_takes_stored_codes_as_they_are(qkv, tmp_path):
    codes = tmp_path / "codes.safetensors"
    octavo("quantize", qkv, "-o", codes)
    (group,) = json.loads(octavo("compare", codes, "--json", "-").stdout)["groups"]
    assert {v["recipe"] for v in group["variants"]} == {"as stored"}
    # Only P is rounded here.
    assert all(0.005 < v["relative_l2"] < 0.04 for v in group["variants"])
