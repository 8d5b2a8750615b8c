# SPDX-License-Identifier: Apache-2.0
"""octavo.quantize on PyTorch tensors: the same bits on a device as in host memory, attended there later."""

import pickle

import ml_dtypes
import numpy as np
import pytest
from torch_support import needs_hopper, octavo, qkv, torch

from octavo._place import position_of_key

RECIPES = ["per_tensor", "per_head", "block", "fp8", "default", "strict_causal", "block+smooth", "per_head+rotate+e5m2"]


def as_numpy(x):
    x = x.cpu().contiguous()
    if x.dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.uint8):
        return x.view(torch.uint8).numpy()
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return x.numpy()


def same_as_host(device_qkv, operands, **arguments):
    host = octavo.quantize(*(as_numpy(x) for x in operands), **arguments)
    for name in "qkv":
        got, want = getattr(device_qkv, name), getattr(host, name)
        assert got.codes.is_cuda and got.dtype == want.dtype and got.codes.shape == want.codes.shape
        assert np.array_equal(as_numpy(got.codes).view(np.uint8), np.asarray(want.codes).view(np.uint8)), name
        assert np.array_equal(as_numpy(got.descale), want.descale), name
    assert (device_qkv.score_shift is None) == (host.score_shift is None)
    if host.score_shift is not None:
        assert np.array_equal(as_numpy(device_qkv.score_shift), host.score_shift)
    assert device_qkv.head_dim == host.head_dim


def test_positions_are_a_permutation_of_each_32():
    found = position_of_key(np.arange(320))
    assert sorted(found) == list(range(320)) and all(found // 32 == np.arange(320) // 32)
    # Position 4 c + i holds key 2 c + i, or 8 + 2 c + i - 2 from i = 2 on (docs/format.md).
    for c in range(4):
        for i in range(4):
            assert found[2 * c + i + (6 if i >= 2 else 0)] == 4 * c + i


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_results_in_a_workspace_become_tensors(monkeypatch, layout):
    """What the kernels leave in a workspace, without a GPU: codes [1, 2, 128, 64], V's transposed, one descale a head."""
    from octavo import _place, _quantized

    bytes_of_codes = 2 * 128 * 64
    workspace = torch.arange(3 * bytes_of_codes + 24).to(torch.uint8)
    workspace[3 * bytes_of_codes :] = torch.arange(6, dtype=torch.float32).view(torch.uint8)

    class Call:
        @staticmethod
        def run_on_device():
            def place(i, shape, name):
                return i * bytes_of_codes, shape, 100, 48, 3 * bytes_of_codes + 8 * i, [1, 2], name

            rows, columns = [1, 2, 128, 64], [1, 2, 64, 128]
            return place(0, rows, "i8"), place(1, rows, "i8"), place(2, columns, "f8_e4m3"), -1, 48

    monkeypatch.setattr(_place.TorchDevice, "_launch", lambda *_: (workspace, ()))
    found = _place.TorchDevice(torch.empty(0)).quantize(Call, None)
    qkv8 = _quantized._assembled(found, "default", layout, "bhsd")
    names = [x.dtype for x in (qkv8.q, qkv8.k, qkv8.v)]
    assert names == ["i8", "i8", "f8_e4m3"] and qkv8.score_shift is None and qkv8.head_dim == 48
    codes, v = (x if layout == "bhsd" else x.swapaxes(1, 2) for x in (qkv8.q.codes, qkv8.v.codes))
    assert codes.shape == v.shape == (1, 2, 100, 48) and codes.dtype == torch.int8
    assert torch.equal(codes.view(torch.uint8), workspace[:bytes_of_codes].view(1, 2, 128, 64)[:, :, :100, :48])
    transposed = workspace[2 * bytes_of_codes : 3 * bytes_of_codes].view(1, 2, 64, 128)
    where = torch.from_numpy(position_of_key(np.arange(100)))
    assert torch.equal(v.view(torch.uint8), transposed[:, :, :48, where].transpose(2, 3))
    assert torch.equal(qkv8.v.descale, torch.tensor([[4.0, 5.0]]))


@needs_hopper
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("shape", [{}, {"d": 80, "dv": 40}, {"sq": 1, "sk": 333, "d": 128}, {"hkv": 1}], ids=str)
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_the_bits_are_those_of_host_memory(recipe, shape, layout):
    operands = qkv(**shape, device="cuda")
    if layout == "bshd":
        operands = [x.transpose(1, 2) for x in operands]
    same_as_host(octavo.quantize(*operands, recipe=recipe, layout=layout), operands, recipe=recipe, layout=layout)


@needs_hopper
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_type_and_key_lengths_of_either_kind(dtype):
    operands = qkv(sk=200, dtype=dtype, device="cuda")
    for lengths in ([150, 7], torch.tensor([150, 7], dtype=torch.int32, device="cuda")):
        got = octavo.quantize(*operands, layout="bhsd", key_lengths=lengths)
        same_as_host(got, operands, layout="bhsd", key_lengths=[150, 7])


@needs_hopper
@pytest.mark.parametrize("recipe", ["default", "block", "fp8", "strict_causal", "block+e5m2"])
@pytest.mark.parametrize("d", [128, 72, 40])
def test_attending_later_gives_the_same_bits(recipe, d):
    operands = qkv(sq=130, sk=300, d=d, device="cuda")
    kept = octavo.quantize(*operands, recipe=recipe, layout="bhsd")
    want, want_lse = octavo.attention(*operands, recipe=recipe, layout="bhsd", causal=True, return_lse=True)
    for _ in range(2):
        out, lse = octavo.attention_quantized(kept, causal=True, return_lse=True)
        assert torch.equal(out, want) and torch.equal(lse, want_lse)
    again = pickle.loads(pickle.dumps(kept))
    assert torch.equal(octavo.attention_quantized(again, causal=True), want)
    assert kept.k.dequantize("bhsd").shape == (2, 2, 300, kept.k.codes.shape[3])  # rotated: of the padded d
    assert kept.v.dequantize("bhsd").shape == operands[2].shape


@needs_hopper
@pytest.mark.parametrize("shape", [{"b": 0}, {"hq": 0, "hkv": 1}, {"sq": 0, "sk": 5}], ids=str)
@pytest.mark.parametrize("recipe", ["default", "per_tensor"])
def test_nothing_to_quantise(shape, recipe):
    operands = qkv(**shape, device="cuda")
    same_as_host(octavo.quantize(*operands, recipe=recipe, layout="bhsd"), operands, recipe=recipe, layout="bhsd")


@needs_hopper
def test_results_keep_no_more_than_themselves_alive():
    operands = qkv(sq=1024, d=128, device="cuda")
    kept = octavo.quantize(*operands, layout="bhsd")
    for x in (kept.q, kept.k, kept.v):
        assert x.codes.untyped_storage().nbytes() == x.codes.numel()


@needs_hopper
def test_another_stream_keeps_temporary_operands():
    operands = qkv(sq=700, sk=3000, d=128, device="cuda")
    want = octavo.attention(*operands, layout="bhsd", return_lse=True)
    side, torch_empty = torch.cuda.Stream(), []
    for _ in range(5):
        temporary = octavo.quantize(*operands, layout="bhsd")
        got = octavo.attention_quantized(temporary, stream=side, return_lse=True)
        del temporary
        torch_empty = [torch.full((1 << 22,), float("nan"), device="cuda") for _ in range(8)]
        side.synchronize()
        assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))
    assert torch_empty


@needs_hopper
def test_a_graph_captures_it():
    operands = qkv(sq=200, d=128, device="cuda")
    want = octavo.quantize(*operands, layout="bhsd")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = octavo.quantize(*operands, layout="bhsd")
    graph.replay()
    for name in "qkv":
        assert np.array_equal(as_numpy(getattr(got, name).codes), as_numpy(getattr(want, name).codes))


@needs_hopper
def test_what_a_device_cannot_do_is_refused():
    q, k, v = qkv(device="cuda")
    with pytest.raises(ValueError, match="k is not on a CUDA device; must be where q is"):
        octavo.quantize(q, k.cpu(), v, layout="bhsd")
    with pytest.raises(NotImplementedError, match="engine is emulate; must be auto or sm90"):
        octavo.quantize(q, k, v, layout="bhsd", engine="emulate")
    with pytest.raises(ValueError, match="v.shape"):
        octavo.quantize(q, k, v[:, :, :5], layout="bhsd")
    with pytest.raises(ValueError, match=r"key_lengths is torch.int64 \[2\]; must be int32 \[2\]"):
        octavo.quantize(q, k, v, layout="bhsd", key_lengths=torch.tensor([3, 4], device="cuda"))
    host = [x.cpu() for x in (q, k, v)]
    with pytest.raises(ValueError, match="key_lengths are in device memory; must be where q is"):
        octavo.quantize(*host, layout="bhsd", key_lengths=torch.tensor([3, 4], dtype=torch.int32, device="cuda"))
