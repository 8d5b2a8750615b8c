# SPDX-License-Identifier: Apache-2.0
"""octavo.diffusers: OctavoAttnProcessor against diffusers' own processors on small random modules."""

import types

import pytest
from torch_support import error, on_devices, torch

pytest.importorskip("diffusers", reason="diffusers is not installed")

from diffusers.models.attention_processor import (  # noqa: E402
    Attention,
    AttnProcessor,
    AttnProcessor2_0,
    HunyuanAttnProcessor2_0,
)

from octavo.diffusers import OctavoAttnProcessor  # noqa: E402

FP8_ERROR = 0.08  # as in test_torch.py


def attention_of(device, dtype=torch.float32, **options):
    """Q and K of order 1, and no bias that would hide what attention puts out."""
    torch.manual_seed(0)
    attn = Attention(**{"query_dim": 128, "heads": 2, "dim_head": 64, "out_bias": False, **options})
    for layer in (attn.to_q, attn.to_k):
        torch.nn.init.normal_(layer.weight, std=layer.weight.shape[1] ** -0.5)
    return attn.to(device, dtype).eval()


def states(*shape, device, dtype=torch.float32, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def both(attn, *arguments, against=AttnProcessor2_0, precision="fp8", **options):
    """The module's output with OctavoAttnProcessor, with `against`, and the report."""
    processor = OctavoAttnProcessor(precision=precision)
    outputs = []
    for each in (processor, against()):
        attn.set_processor(each)
        with torch.no_grad():
            outputs.append(attn(*arguments, **options))
    assert outputs[0].dtype == outputs[1].dtype and outputs[0].shape == outputs[1].shape
    return *outputs, processor.report


@on_devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("keys", [None, 77])
def test_self_and_cross_attention(device, dtype, keys):
    attn = attention_of(device, dtype, cross_attention_dim=keys and 96)
    text = None if keys is None else states(2, keys, 96, device=device, dtype=dtype, seed=2)
    got, want, report = both(attn, states(2, 100, 128, device=device, dtype=dtype), text)
    assert got.dtype == dtype and 0.005 < error(got, want) < FP8_ERROR
    assert report.calls == 1 and report.kept.total() == 0


@on_devices
@pytest.mark.parametrize(
    "options",
    [
        {"qk_norm": "rms_norm"},
        {"qk_norm": "layer_norm"},
        {"cross_attention_dim": 96, "cross_attention_norm": "layer_norm"},
        {"cross_attention_dim": 96, "cross_attention_norm": "group_norm"},
        {"norm_num_groups": 32, "rescale_output_factor": 1.5},
    ],
    ids=str,
)
def test_norms_and_output_factor(device, options):
    attn = attention_of(device, **options)
    text = states(2, 77, 96, device=device) if "cross_attention_dim" in options else None
    got, want, report = both(attn, states(2, 100, 128, device=device), text)
    assert 0.005 < error(got, want) < FP8_ERROR and report.calls == 1


@on_devices
@pytest.mark.parametrize("options", [{}, {"norm_num_groups": 32}, {"spatial_norm_dim": 8}], ids=str)
@pytest.mark.parametrize("residual", [False, True])
def test_a_token_per_pixel(device, options, residual):
    attn = attention_of(device, residual_connection=residual, **options)
    image = states(2, 128, 10, 12, device=device)
    temb = {"temb": states(2, 8, 5, 6, device=device)} if "spatial_norm_dim" in options else {}
    got, want, report = both(attn, image, **temb)
    assert got.shape == image.shape and report.calls == 1
    if residual:
        got, want = got - image, want - image
    assert 0.005 < error(got, want) < FP8_ERROR


@on_devices
def test_rotary_embedding(device):
    attn = attention_of(device, qk_norm="layer_norm")
    angles = states(100, 32, device=device, seed=3).repeat_interleave(2, 1)
    x, rotary = states(2, 100, 128, device=device), (angles.cos(), angles.sin())
    got, want, report = both(attn, x, against=HunyuanAttnProcessor2_0, image_rotary_emb=rotary)
    assert 0.005 < error(got, want) < FP8_ERROR and report.calls == 1
    assert error(got, both(attn, x)[0]) > 0.2
    with pytest.raises(ValueError, match=r"image_rotary_emb must be cos and sin, \[100, 64\] each"):
        both(attn, x, image_rotary_emb=(angles[:50].cos(), angles[:50].sin()))


@on_devices
def test_scores_without_scale(device):
    attn = attention_of(device, scale_qk=False, dim_head=8, heads=16)
    got, want, _ = both(attn, states(2, 100, 128, device=device), against=AttnProcessor)
    assert 0.005 < error(got, want) < FP8_ERROR


@on_devices
def test_fewer_heads_of_keys(device):
    attn = attention_of(device, heads=4, dim_head=32, kv_heads=2).requires_grad_(False)
    x = states(2, 100, 128, device=device)
    got = OctavoAttnProcessor()(attn, x)
    for layer in (attn.to_k, attn.to_v):
        layer.weight.data = layer.weight.unflatten(0, (2, 32)).repeat_interleave(2, 0).flatten(0, 1)
    assert 0.005 < error(got, AttnProcessor2_0()(attn, x)) < FP8_ERROR


@on_devices
def test_16_bits(device):
    attn = attention_of(device, torch.bfloat16)
    x = states(2, 100, 128, device=device, dtype=torch.bfloat16)
    got, want, report = both(attn, x, precision="bf16")
    assert error(got, want) < 1e-2 and report.calls == 1
    assert not torch.equal(got, both(attn, x)[0])


# what stays with torch


@on_devices
def test_16_bits_of_another_type_stay_with_torch(device):
    got, want, report = both(attention_of(device), states(2, 100, 128, device=device), precision="bf16")
    assert torch.equal(got, want)
    assert dict(report.kept) == {"dtype is torch.float32: must be torch.bfloat16 where precision is bf16": 1}


@on_devices
@pytest.mark.parametrize("shape", [(2, 1, 77), (2, 77), (4, 100, 77)], ids=str)
def test_a_mask_stays_with_torch(device, shape):
    attn = attention_of(device, cross_attention_dim=96)
    text = states(2, 77, 96, device=device, seed=2)
    mask = torch.zeros(shape, device=device)
    mask[..., 50:] = -10000.0
    got, want, report = both(attn, states(2, 100, 128, device=device), text, attention_mask=mask)
    assert torch.equal(got, want)
    assert report.calls == 0 and report.kept.total() == 1 and "attn_mask is given" in str(report)


@on_devices
def test_gradients_and_few_tokens_stay_with_torch(device):
    attn, processor = attention_of(device), OctavoAttnProcessor()
    attn.set_processor(processor)
    attn(states(2, 100, 128, device=device)).sum().backward()
    assert attn.to_q.weight.grad.abs().sum() > 0
    with torch.no_grad():
        attn(states(2, 8, 128, device=device))
    assert processor.report.calls == 0
    assert all(word in str(processor.report) for word in ("0 of 2", "gradient", "query rows"))


@on_devices
def test_autocast(device):
    attn = attention_of(device, qk_norm="layer_norm")  # whose output is float32 beside V in bfloat16
    with torch.autocast(device, torch.bfloat16):
        got, want, report = both(attn, states(2, 100, 128, device=device))
    assert got.dtype == torch.bfloat16 and report.calls == 1
    assert 0.005 < error(got, want) < FP8_ERROR


@on_devices
def test_one_processor_of_a_compiled_module(device):
    attn, processor = attention_of(device), OctavoAttnProcessor(recipe="block")
    x = states(2, 100, 128, device=device)

    def call(y):
        return processor(attn, y)

    with torch.no_grad():
        assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(x), call(x))


# errors


@pytest.mark.parametrize(
    "options, arguments, kind, sentence",
    [
        ({"added_kv_proj_dim": 96}, {}, NotImplementedError, "added_kv_proj_dim.*sdpa_override"),
        ({"pre_only": True}, {}, NotImplementedError, "no to_out.*sdpa_override"),
        ({}, {"temb": (1, 2)}, NotImplementedError, "temb is a tuple"),
        ({}, {"ip_adapter_masks": [1]}, NotImplementedError, "arguments are unknown: ip_adapter_masks"),
        ({}, {"hidden_states": torch.zeros(100, 128)}, ValueError, r"hidden_states is \[100, 128\]"),
    ],
)
def test_refusals(options, arguments, kind, sentence):
    processor = OctavoAttnProcessor()
    with pytest.raises(kind, match=sentence):
        processor(attention_of("cpu", **options), **{"hidden_states": torch.zeros(2, 100, 128), **arguments})


def test_a_module_without_the_options():
    """As in examples/python/torch_diffusers.py: what Attention has besides may be missing."""
    attn, x = attention_of("cpu"), states(2, 100, 128, device="cpu")
    least = types.SimpleNamespace(**{name: getattr(attn, name) for name in ("heads", "to_q", "to_k", "to_v", "to_out")})
    with torch.no_grad():
        assert torch.equal(OctavoAttnProcessor()(least, x), OctavoAttnProcessor()(attn, x))
