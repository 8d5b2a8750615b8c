# SPDX-License-Identifier: Apache-2.0
"""Values of the Python package: against the reference engine, and against attention in numpy."""

import ml_dtypes
import numpy as np
import pytest
from cli_support import attention as numpy_attention
from cli_support import relative_l2
from octavo_support import DTYPES, RECIPES, Tensor, octavo, qkv, same_bits

# The reference computes in double precision and rounds its output once, to float32.
REFERENCE = {"engine": "reference", "out_dtype": "f32"}

CALLS = {
    "plain": ({}, {}),
    "causal": ({"causal": True}, {"causal": True}),
    "window": ({"window": (20, 3)}, {"window": (20, 3)}),
    "window without a limit behind": ({"window": (None, 3)}, {"window": (np.inf, 3)}),
    "window without a limit ahead": ({"window": (5, -1)}, {"window": (5, np.inf)}),
    "softcap": ({"softcap": 2.0}, {"softcap": 2.0}),
    "sm_scale": ({"sm_scale": 0.07}, {"scale": 0.07}),
    "key_lengths": ({"key_lengths": [130, 17]}, {"lengths": [130, 17]}),
    "key_lengths as an array": ({"key_lengths": np.array([0, 99])}, {"lengths": [0, 99]}),
    "all at once": (
        {"window": (64, 0), "softcap": 5.0, "sm_scale": 0.2, "key_lengths": (100, 130)},
        {"window": (64, 0), "softcap": 5.0, "scale": 0.2, "lengths": (100, 130)},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_reference_is_attention_in_numpy(name):
    call, formula = CALLS[name]
    q, k, v = qkv()
    out, lse = octavo.attention(q, k, v, **call, **REFERENCE, return_lse=True)
    want, want_lse = numpy_attention(q, k, v, **formula)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CALLS)
def test_fp8_is_close_to_attention_in_numpy(name):
    call, formula = CALLS[name]
    q, k, v = qkv()
    out, lse = octavo.attention(q, k, v, **call, return_lse=True)
    want, want_lse = numpy_attention(q, k, v, **formula)
    # E4M3 rounds by up to 2^-4, 1 to 3 in a hundred on average; none at all would be no FP8.
    assert 0.005 < relative_l2(out, want) < 0.08
    seen = np.isfinite(want_lse)
    assert (np.isneginf(lse) == ~seen).all()
    np.testing.assert_allclose(lse[seen], want_lse[seen], atol=0.2)


@pytest.mark.parametrize(
    "shape",
    [{"hq": 2}, {"hq": 6, "hkv": 1}, {"d": 8}, {"d": 96, "dv": 40}, {"d": 256, "b": 1}, {"sq": 1}, {"sk": 1}],
    ids=str,
)
def test_shapes(shape):
    q, k, v = qkv(**shape)
    want, want_lse = numpy_attention(q, k, v)
    out, lse = octavo.attention(q, k, v, **REFERENCE, return_lse=True)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-5, atol=1e-5)
    assert relative_l2(octavo.attention(q, k, v), want) < 0.08


@pytest.mark.parametrize("recipe", [*RECIPES, "block+rotate+smooth", "per_head+e5m2"])
def test_recipes(recipe):
    q, k, v = qkv()
    want, _ = numpy_attention(q, k, v)
    out = octavo.attention(q, k, v, recipe=recipe)
    assert 0.005 < relative_l2(out, want) < (0.12 if "e5m2" in recipe else 0.08)
    assert recipe == "default" or not same_bits(out, octavo.attention(q, k, v))


@pytest.mark.parametrize(
    "option", [{"softmax": "direct"}, {"accumulator": "fp32"}, {"promote_every": 0}, {"num_splits": 3}], ids=str
)
def test_numeric_options_reach_the_library(option):
    q, k, v = qkv(sk=300)
    want, _ = numpy_attention(q, k, v)
    out = octavo.attention(q, k, v, **option)
    assert relative_l2(out, want) < 0.08
    assert not same_bits(out, octavo.attention(q, k, v))


# Bounds of the error of weights rounded to 8 bits or 11, each off by up to 2^-9 or 2^-12: below, none was rounded.
SIXTEEN_BITS = {"bf16": ("bf16", 5e-4, 3e-3), "fp16": ("f16", 6e-5, 4e-4)}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("precision", SIXTEEN_BITS)
def test_16_bits_round_the_weights_only(precision, name):
    call, formula = CALLS[name]
    dtype, least, most = SIXTEEN_BITS[precision]
    q, k, v = qkv(dtype=dtype)
    out, lse = octavo.attention(q, k, v, precision=precision, **call, out_dtype="f32", return_lse=True)
    want, want_lse = numpy_attention(q, k, v, **formula)
    assert least < relative_l2(out, want) < most
    np.testing.assert_allclose(lse, want_lse, rtol=1e-4, atol=1e-4)


def test_auto_takes_16_bits_for_short_sequences():
    q, k, v = qkv(dtype="bf16")
    assert same_bits(octavo.attention(q, k, v, precision="auto"), octavo.attention(q, k, v, precision="bf16"))
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    assert same_bits(octavo.attention(q, k, v, precision="auto"), octavo.attention(q, k, v))


@pytest.mark.parametrize(
    "shape", [{"hq": 6, "hkv": 1}, {"d": 8}, {"d": 96, "dv": 40}, {"d": 256, "sk": 300}, {"sq": 1}], ids=str
)
@pytest.mark.parametrize("num_splits", [1, 3])
def test_shapes_in_16_bits(shape, num_splits):
    q, k, v = qkv(**shape, dtype="bf16")
    out = octavo.attention(q, k, v, precision="bf16", num_splits=num_splits)
    assert out.dtype == DTYPES["bf16"]
    assert 1e-4 < relative_l2(out, numpy_attention(q, k, v)[0]) < 1e-2  # of the output's own rounding as well


def test_ways_to_give_16_bits():
    q, k, v = qkv(dtype="bf16")
    want = octavo.attention(q, k, v, precision="bf16")
    assert not same_bits(want, octavo.attention(q, k, v))
    assert same_bits(octavo.attention(q, k, v, precision="bf16", threads=3), want)
    assert same_bits(octavo.attention(*(x.view(np.uint16) for x in (q, k, v)), dtype="bf16", precision="bf16"), want)
    turned = (x.swapaxes(1, 2) for x in (q, k, v))
    assert same_bits(octavo.attention(*turned, layout="bhsd", precision="bf16").swapaxes(1, 2), want)
    given = np.empty_like(want)
    assert octavo.attention(q, k, v, precision="bf16", out=given) is given and same_bits(given, want)


def test_the_reference_knows_no_precision():
    q, k, v = qkv(dtype="f16")
    assert same_bits(octavo.attention(q, k, v, precision="fp16", **REFERENCE), octavo.attention(q, k, v, **REFERENCE))


def test_threads_change_nothing():
    q, k, v = qkv()
    one, three = (octavo.attention(q, k, v, threads=n) for n in (1, 3))
    assert same_bits(one, three)
    assert same_bits(one, octavo.attention(q, k, v, engine="emulate"))


# types


@pytest.mark.parametrize("given", DTYPES)
@pytest.mark.parametrize("wanted", [None, *DTYPES])
def test_types_of_operands_and_output(given, wanted):
    q, k, v = qkv(dtype=given)
    out = octavo.attention(q, k, v, engine="reference", out_dtype=wanted)
    assert out.dtype == DTYPES[wanted or given]
    want, _ = numpy_attention(q, k, v)
    np.testing.assert_allclose(out.astype(np.float64), want, rtol=2**-8, atol=2**-8)


def test_names_of_types():
    q, k, v = qkv()
    for name in ("bf16", "bfloat16", "torch.bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert octavo.attention(q, k, v, out_dtype=name).dtype == DTYPES["bf16"]
    assert octavo.attention(q, k, v, out_dtype=np.float16).dtype == np.float16


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_bits_of_16_bit_types(name):
    operands = qkv(dtype=name)
    want = octavo.attention(*operands)
    bits = [x.view(np.uint16) for x in operands]
    assert same_bits(octavo.attention(*bits, dtype=name), want)
    mixed = (bits[0], operands[1], bits[2])
    assert same_bits(octavo.attention(*mixed, dtype=(name, None, name)), want)
    out = np.zeros(want.shape, np.uint16)
    assert octavo.attention(*operands, out=out, out_dtype=name) is out
    assert same_bits(out.view(want.dtype), want)


def test_arrays_of_other_frameworks():
    q, k, v = qkv()
    want = octavo.attention(q, k, v)
    foreign = [Tensor(x, "other.float32") for x in (q, k, v)]
    out = Tensor(np.zeros_like(q), "other.float32")
    assert octavo.attention(*foreign, out=out) is out
    assert same_bits(out.array, want)
    assert same_bits(octavo.attention(*foreign), want)
    assert same_bits(octavo.attention(*map(memoryview, (q, k, v))), want)


# layouts and strides


def test_bhsd_is_a_view():
    q, k, v = qkv()
    want, want_lse = octavo.attention(q, k, v, return_lse=True)
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    out, lse = octavo.attention(*turned, layout="bhsd", return_lse=True)
    assert out.flags.c_contiguous and same_bits(out.swapaxes(1, 2), want) and same_bits(lse, want_lse)
    views = [x.swapaxes(1, 2) for x in (q, k, v)]
    assert same_bits(octavo.attention(*views, layout="bhsd"), out)


def test_slices_of_packed_qkv_and_of_a_larger_output():
    q, k, v = qkv(sq=130)
    want = octavo.attention(q, k, v, causal=True)
    packed = np.concatenate([q, k, v], axis=2)
    out = np.full((2, 130, 8, 72), 7, np.float32)
    part = out[:, :, ::2, 4:68]
    views = packed[:, :, :4], packed[:, :, 4:6], packed[:, :, 6:]
    assert octavo.attention(*views, causal=True, out=part) is part
    assert same_bits(part, want)
    part[...] = 7
    assert (out == 7).all()  # nothing beside it was written


def test_broadcast_and_read_only_operands():
    q, k, v = qkv(b=1, hq=2)
    want = octavo.attention(*(np.repeat(x, 3, axis=0) for x in (q, k, v)), recipe="per_head")
    views = [np.broadcast_to(x, (3, *x.shape[1:])) for x in (q, k, v)]
    assert not any(x.flags.writeable for x in views)
    assert same_bits(octavo.attention(*views, recipe="per_head"), want)


@pytest.mark.parametrize("engine", ["emulate", "reference"])
def test_tensors_without_elements(engine):
    q, k, v = qkv()
    assert octavo.attention(q[:0], k[:0], v[:0], engine=engine).shape == (0, 70, 4, 64)
    out, lse = octavo.attention(q[:, :0], k, v, engine=engine, return_lse=True)
    assert out.shape == (2, 0, 4, 64) and lse.shape == (2, 4, 0)
    assert octavo.attention(q[:, :, :0], k, v, engine=engine).shape == (2, 70, 0, 64)
    out, lse = octavo.attention(q, k[:, :0], v[:, :0], engine=engine, return_lse=True)
    assert (out == 0).all() and np.isneginf(lse).all()


# quantised operands


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("recipe", [*RECIPES, "block+e5m2"])
@pytest.mark.parametrize("d", [64, 72])
def test_two_steps_have_the_bits_of_one(recipe, layout, d):
    operands = qkv(d=d, dtype="bf16")
    if layout == "bhsd":
        operands = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in operands]
    call = {"causal": True, "softcap": 8.0, "key_lengths": [130, 40], "return_lse": True}
    want, want_lse = octavo.attention(*operands, recipe=recipe, layout=layout, **call)
    quantized = octavo.quantize(*operands, recipe=recipe, layout=layout, key_lengths=[130, 40])
    assert (quantized.recipe, quantized.layout, quantized.head_dim) == (recipe, layout, d)
    out, lse = octavo.attention_quantized(quantized, **call)
    assert same_bits(out, want) and same_bits(lse, want_lse)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("recipe", [*RECIPES, "block+e5m2"])
def test_dequantize_is_what_the_engines_see(recipe, layout):
    q, k, v = (x if layout == "bshd" else x.swapaxes(1, 2) for x in qkv(sq=200, d=72))
    quantized = octavo.quantize(q, k, v, recipe=recipe, layout=layout)
    values = [x if layout == "bshd" else x.swapaxes(1, 2) for x in quantized.dequantize()]
    want, want_lse = numpy_attention(*values, scale=72**-0.5)
    if quantized.score_shift is not None:
        want_lse += quantized.score_shift * 72**-0.5
    out, lse = octavo.attention_quantized(quantized, **REFERENCE, return_lse=True)
    out = out if layout == "bshd" else out.swapaxes(1, 2)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("recipe", ["per_tensor", "per_head", "block", "block+e5m2"])
def test_dequantize_returns_to_the_inputs(recipe):
    operands = qkv(sq=200)
    for got, want in zip(octavo.quantize(*operands, recipe=recipe).dequantize(), operands, strict=True):
        assert got.dtype == np.float32 and got.shape == want.shape
        assert 0.005 < relative_l2(got, want) < (0.07 if "e5m2" in recipe else 0.04)


@pytest.mark.parametrize("shape", [(1,), (2,), (4,), (2, 4), (1, 1), (2, 2, 4), (2, 4, 2), (1, 4, 200)], ids=str)
def test_descales_of_every_shape(shape):
    q, k, v = qkv(sq=200)
    quantized = octavo.quantize(q, k, v, recipe="per_tensor")
    descale = quantized.q.descale[0] * np.random.default_rng(1).uniform(0.5, 2, shape).astype(np.float32)
    q8 = octavo.QuantizedTensor(quantized.q.codes, descale, "f8_e4m3")
    out = octavo.attention(q8, quantized.k, quantized.v, **REFERENCE)
    values = [x.dequantize() for x in (q8, quantized.k, quantized.v)]
    np.testing.assert_allclose(out, numpy_attention(*values)[0], rtol=1e-5, atol=1e-6)


def test_fp8_caches_beside_16_bit_queries():
    q, k, v = qkv(dtype="bf16")
    cache = octavo.quantize(q, k, v, recipe="block")
    codes = cache.k.codes.view(ml_dtypes.float8_e4m3fn)
    k8 = octavo.QuantizedTensor(codes, cache.k.descale)
    assert k8.dtype == "f8_e4m3" and k8.codes is codes
    out = octavo.attention(q, k8, cache.v)
    assert same_bits(out, octavo.attention(q, k, v, recipe="block"))
    bits = octavo.QuantizedTensor(Tensor(cache.k.codes, "other.uint8"), cache.k.descale, "float8_e4m3fn")
    assert same_bits(octavo.attention(q, bits, cache.v), out)
    assert same_bits(bits.dequantize(), k8.dequantize())
    strided = octavo.QuantizedTensor(Tensor(cache.k.codes[:, ::2, :, 8:24], "other.uint8"), cache.k.descale, "f8_e4m3")
    every_second = octavo.QuantizedTensor(codes[:, ::2, :, 8:24], cache.k.descale)
    assert same_bits(strided.dequantize(), every_second.dequantize())


def test_quantize_writes_what_it_says():
    q, k, v = qkv(sq=200)
    quantized = octavo.quantize(q, k, v, key_lengths=[130, 40])
    assert quantized.q.codes.dtype == np.int8 and quantized.q.codes.shape == q.shape
    assert [x.descale.shape for x in (quantized.q, quantized.k, quantized.v)] == [(2, 4, 200), (2, 2, 2), (2, 2, 2)]
    assert quantized.score_shift.shape == (2, 4, 200)
    assert (quantized.v.codes[1, 40:] == 0).all() and (quantized.v.codes[1, :40] != 0).any()
    assert octavo.quantize(q, k, v, recipe="block").score_shift is None
    assert octavo.quantize(q[:0], k[:0], v[:0]).q.dequantize().shape == (0, 200, 4, 64)
    assert quantized.k.codes.dtype == np.int8 and quantized.v.codes.dtype == np.uint8
    assert repr(quantized.k) == "QuantizedTensor(i8 [2, 130, 2, 64], descale [2, 2, 2])"


# what there is


def test_info():
    info = octavo.info()
    assert info["version"] == octavo.__version__
    assert info["engines"] == ["sm90", "emulate", "reference"]
    assert info["recipes"] == RECIPES
    assert info["simd"] and isinstance(info["cuda"], bool) and info["device"]


def test_why_unsupported():
    q, k, v = qkv()
    assert octavo.why_unsupported(q, k, v) == ""
    assert octavo.why_unsupported(q, k, v, engine="emulate", layout="bshd", causal=True) == ""
    half = [x.astype(np.float16) for x in (q, k, v)]
    for engine in ("auto", "emulate", "reference"):
        assert octavo.why_unsupported(*half, precision="fp16", engine=engine) == ""
    direct = {"recipe": "strict_causal", "softmax": "direct"}
    sentence = "softmax is direct; must be exact where v has a descale per token (recipe strict_causal)"
    assert octavo.why_unsupported(q, k, v, engine="emulate", **direct).startswith(sentence)
    assert f"emulate: {sentence}" in octavo.why_unsupported(q, k, v, **direct)
    assert octavo.why_unsupported(q, k, v, engine="reference", **direct) == ""
    with pytest.raises(NotImplementedError, match="attention_forward: no engine computes this call: .*emulate: soft"):
        octavo.attention(q, k, v, **direct)
