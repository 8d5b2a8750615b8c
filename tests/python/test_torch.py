# SPDX-License-Identifier: Apache-2.0
"""octavo.torch: values, layouts, tracing, errors."""

import concurrent.futures
import gc
import math
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch_support import error, needs_hopper, octavo, on_devices, qkv, torch, torch_sdpa

FP8_ERROR = 0.08  # relative L2 on normal data: E4M3 rounds 3 mantissa bits; below 0.005 nothing was rounded

# Precisions of 16 bits: the operands' type, and bounds of the error of weights rounded to 8 or 11 bits.
SIXTEEN_BITS = {"bf16": (torch.bfloat16, 5e-4, 3e-3), "fp16": (torch.float16, 6e-5, 4e-4)}


@on_devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [{}, {"hkv": 4}, {"hkv": 1, "d": 128}, {"sk": 333}, {"d": 96, "dv": 40}], ids=str)
def test_attention_is_close_to_torch(device, dtype, shape):
    q, k, v = qkv(**shape, dtype=dtype, device=device)
    out, lse = octavo.torch.attention(q, k, v, layout="bhsd", return_lse=True)
    assert out.dtype == dtype and out.device == q.device and lse.dtype == torch.float32
    assert out.shape == (*q.shape[:3], v.shape[3]) and lse.shape == q.shape[:3]
    assert 0.005 < error(out, torch_sdpa(q, k, v)) < FP8_ERROR
    scores = q.double().cpu() @ k.double().cpu().repeat_interleave(q.shape[1] // k.shape[1], 1).mT / q.shape[3] ** 0.5
    assert (lse.cpu() - scores.logsumexp(-1)).abs().max() < 0.2


@on_devices
@pytest.mark.parametrize("precision", SIXTEEN_BITS)
@pytest.mark.parametrize(
    "shape", [{}, {"hkv": 1, "d": 128}, {"sk": 333}, {"d": 96, "dv": 40}, {"d": 256, "hkv": 4}], ids=str
)
def test_16_bits_are_closer_to_torch(device, precision, shape):
    dtype, least, most = SIXTEEN_BITS[precision]
    q, k, v = qkv(**shape, dtype=dtype, device=device)
    got, lse = octavo.torch.attention(
        q, k, v, layout="bhsd", precision=precision, out_dtype=torch.float32, return_lse=True
    )
    assert least < error(got, torch_sdpa(q, k, v)) < most
    scores = q.double().cpu() @ k.double().cpu().repeat_interleave(q.shape[1] // k.shape[1], 1).mT / q.shape[3] ** 0.5
    assert (lse.cpu() - scores.logsumexp(-1)).abs().max() < 1e-3
    assert octavo.torch.attention(q, k, v, layout="bhsd", precision=precision).dtype == dtype


@on_devices
@pytest.mark.parametrize("causal", [False, True])
def test_sdpa_in_16_bits(device, causal):
    q, k, v = qkv(sq=150, sk=40, device=device)
    got = octavo.torch.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=True, scale=0.2, precision="bf16"
    )
    assert 1e-4 < error(got, torch_sdpa(q, k, v, is_causal=causal, scale=0.2)) < 1e-2


@needs_hopper
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("precision", SIXTEEN_BITS)
def test_16_bits_lose_no_more_than_cudnn(precision, d, causal):
    q, k, v = qkv(sq=2048, d=d, hkv=4, dtype=SIXTEEN_BITS[precision][0], device="cuda")
    exact = torch_sdpa(q, k, v, is_causal=causal)
    got = octavo.torch.attention(q, k, v, layout="bhsd", causal=causal, precision=precision)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        peer = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    ours, cudnn = error(got, exact), error(peer, exact)
    print(f"{precision} d{d} causal={causal}: {ours:.3e}, cuDNN {cudnn:.3e}")
    assert ours < 1.05 * cudnn


@on_devices
def test_direct_softmax(device):
    q, k, v = qkv(sq=300, device=device)
    got = octavo.torch.attention(q, k, v, layout="bhsd", softmax="direct")
    assert 0.005 < error(got, torch_sdpa(q, k, v)) < FP8_ERROR
    assert not torch.equal(got, octavo.torch.attention(q, k, v, layout="bhsd"))


@on_devices
def test_layouts_agree(device):
    q, k, v = qkv(device=device)
    want = octavo.torch.attention(q, k, v, layout="bhsd")
    swapped = (x.transpose(1, 2) for x in (q, k, v))
    assert torch.equal(octavo.torch.attention(*swapped).transpose(1, 2), want)
    assert want.transpose(1, 2).is_contiguous()


@on_devices
@pytest.mark.parametrize("sq, sk", [(70, 70), (40, 150), (150, 40)])
@pytest.mark.parametrize("causal", [False, True])
def test_sdpa_has_torchs_masks(device, sq, sk, causal):
    q, k, v = qkv(sq=sq, sk=sk, device=device)
    got = octavo.torch.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True, scale=0.2)
    assert 0.005 < error(got, torch_sdpa(q, k, v, is_causal=causal, scale=0.2)) < FP8_ERROR


@on_devices
@pytest.mark.parametrize("precision, most", [("fp8", FP8_ERROR), ("bf16", 1e-2)])
def test_key_lengths_of_a_tensor(device, precision, most):
    q, k, v = qkv(device=device)
    lengths = torch.tensor([100, 37], dtype=torch.int32, device=device)
    got = octavo.torch.attention(q, k, v, layout="bhsd", key_lengths=lengths, precision=precision)
    entries = [(slice(i, i + 1), n) for i, n in enumerate((100, 37))]
    want = torch.cat([torch_sdpa(q[i], k[i, :, :n], v[i, :, :n]) for i, n in entries])
    assert error(got, want) < most


@needs_hopper
def test_key_lengths_of_a_tensor_with_fp8_operands():
    operands = [x.to(torch.float8_e4m3fn) for x in qkv(device="cuda", dtype=torch.float32, layout="bshd")]
    descales = {f"{name}_descale": torch.ones(1, device="cuda") for name in "qkv"}
    lengths = torch.tensor([100, 37], dtype=torch.int32, device="cuda")
    got = octavo.torch.attention(*operands, **descales, key_lengths=lengths)
    want = octavo.torch.attention(*operands, **descales, key_lengths=lengths.cpu())
    assert torch.equal(got, want)


@needs_hopper
def test_key_lengths_elsewhere_are_refused():
    q, k, v = qkv(layout="bshd")
    with pytest.raises(ValueError, match="key_lengths are in device memory"):
        octavo.attention(q, k, v, key_lengths=torch.tensor([100, 37], dtype=torch.int32, device="cuda"))


@on_devices
def test_fp8_operands(device):
    operands = [x.to(torch.float8_e4m3fn) for x in qkv(device=device, dtype=torch.float32, layout="bshd")]
    descales = [torch.full((2, 2), scale, device=device) for scale in (0.5, 1.5, 2.0)]
    names = ("q_descale", "k_descale", "v_descale")
    got = octavo.torch.flash_attn_func(*operands, causal=True, **dict(zip(names, descales, strict=True)))
    assert got.dtype == torch.bfloat16
    real = [(x.float() * s.flatten()[0]).transpose(1, 2) for x, s in zip(operands, descales)]
    assert error(got.transpose(1, 2), torch_sdpa(*real, is_causal=True)) < FP8_ERROR


@on_devices
def test_flash_attention_is_aligned_with_the_last_keys(device):
    q, k, v = qkv(sq=30, sk=100, device=device, layout="bshd")
    got, lse = octavo.torch.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    mask = torch.ones(30, 100, dtype=torch.bool).tril(70)
    assert error(got.transpose(1, 2), torch_sdpa(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask)) < FP8_ERROR
    assert lse.shape == (2, 4, 30)
    windowed = octavo.torch.flash_attn_func(q, k, v, window_size=(-1, 0))
    assert torch.equal(windowed, got)


@on_devices
def test_packed_sequences(device):
    q, k, v = (x[0] for x in qkv(b=1, sq=120, device=device, layout="bshd"))
    ends = torch.tensor([0, 50, 120], dtype=torch.int32, device=device)
    got, lse = octavo.torch.flash_attn_varlen_func(q, k, v, ends, ends, 70, 70, causal=True, return_attn_probs=True)
    for begin, end in ((0, 50), (50, 120)):
        want = octavo.torch.flash_attn_func(*(x[None, begin:end] for x in (q, k, v)), causal=True)
        assert torch.equal(got[begin:end], want[0])
    assert lse.shape == (4, 120)


# tracing


@on_devices
@pytest.mark.parametrize("precision", ["fp8", "bf16"])
def test_opcheck(device, precision):
    q, k, v = qkv(sq=40, device=device)
    arguments = (q, k, v, None, None, None, -1, 0, 0.0, None, precision, None, "exact", 1, None, None, "bhsd", "auto")
    torch.library.opcheck(torch.ops.octavo.attention.default, arguments)
    torch.library.opcheck(torch.ops.octavo.attention_with_lse.default, arguments)


@on_devices
@pytest.mark.parametrize("precision", ["fp8", "bf16"])
def test_compiled_whole_and_for_any_length(device, precision):
    def layer(q, k, v):
        return 1 + octavo.torch.scaled_dot_product_attention(
            q * 0.5, k, v, is_causal=True, enable_gqa=True, precision=precision
        )

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for sq in (64, 100, 129):
        operands = qkv(sq=sq, device=device)
        assert torch.equal(compiled(*operands), layer(*operands))


@needs_hopper
@pytest.mark.parametrize("precision", ["fp8", "bf16"])
def test_cuda_graph(precision):
    call = {"layout": "bhsd", "causal": True, "precision": precision}
    q, k, v = qkv(sq=300, device="cuda")
    octavo.torch.attention(q, k, v, **call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = octavo.torch.attention(q, k, v, **call)
    for seed in (5, 6):
        for mine, new in zip((q, k, v), qkv(sq=300, device="cuda", seed=seed)):
            mine.copy_(new)
        graph.replay()
        assert torch.equal(out, octavo.torch.attention(q, k, v, **call))


@needs_hopper
def test_streams_and_plain_calls_give_the_same_bits():
    q, k, v = qkv(sq=300, device="cuda")
    want = octavo.torch.attention(q, k, v, layout="bhsd")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        on_side = octavo.torch.attention(q, k, v, layout="bhsd")
    given = octavo.attention(q, k, v, layout="bhsd", stream=side)
    torch.cuda.synchronize()
    assert torch.equal(on_side, want) and torch.equal(given, want)


@needs_hopper
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"out_dtype": "f32"}, {"causal": True, "recipe": "block", "sm_scale": 0.1}, {"precision": "bf16"}],
    ids=str,
)
def test_tensors_with_and_without_the_functions_in_c(monkeypatch, layout, arguments):
    from octavo import _place

    q, k, v = qkv(sq=130, device="cuda", layout=layout)

    def results():
        made = octavo.attention(q, k, v, layout=layout, return_lse=True, **arguments)
        given = torch.empty_like(made[0])
        assert octavo.attention(q, k, v, layout=layout, out=given, **arguments) is given
        return *made, given

    before = results()
    monkeypatch.setattr(_place, "_exchanges", lambda kind: False)  # as before PyTorch 2.10
    after = results()
    for x, y in zip(before, after, strict=True):
        assert type(x) is torch.Tensor and x.dtype == y.dtype and x.stride() == y.stride() and torch.equal(x, y)
    assert torch.equal(before[0], before[2])


@needs_hopper
def test_16_bits_that_the_copy_engine_cannot_read():
    q, k, v = qkv(hkv=1, device="cuda")
    one_head = k.expand(2, 4, 100, 64)
    with pytest.raises(NotImplementedError, match="k is in 16 bits and broadcast"):
        octavo.torch.attention(q, one_head, v.expand(2, 4, 100, 64), layout="bhsd", precision="bf16")
    got = octavo.torch.attention(q, one_head, v.expand(2, 4, 100, 64), layout="bhsd", precision="auto")
    assert torch.equal(got, octavo.torch.attention(q, k, v, layout="bhsd"))
    with octavo.torch.sdpa_override(precision="bf16") as report:
        torch.nn.functional.scaled_dot_product_attention(q, one_head, one_head)
    assert report.calls == 0 and "broadcast" in str(report)


@needs_hopper
def test_memory_that_is_used_up_is_said_as_by_torch():
    q, k, v = qkv(device="cuda", layout="bshd")
    wide = q[:, :1].expand(2, 1 << 20, 4, 64)  # no memory of its own; its output and workspace have
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-3)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            octavo.attention(wide, k, v)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.isfinite(octavo.attention(q, k, v)).all()


@needs_hopper
@pytest.mark.parametrize("precision", ["fp8", "bf16"])
def test_the_cpu_computes_nearly_the_same(precision):
    operands = qkv(sq=300)
    on_cpu = octavo.torch.attention(*operands, layout="bhsd", precision=precision)
    on_gpu = octavo.torch.attention(*(x.cuda() for x in operands), layout="bhsd", precision=precision)
    assert error(on_gpu, on_cpu) < 0.005


@needs_hopper
def test_arrays_of_other_frameworks():
    cupy = pytest.importorskip("cupy")
    q, k, v = qkv(dtype=torch.float16, device="cuda", layout="bshd")
    want = octavo.attention(q, k, v, causal=True)
    torch.cuda.synchronize()
    got = octavo.attention(*(cupy.from_dlpack(x) for x in (q, k, v)), causal=True)
    cupy.cuda.Device().synchronize()
    assert isinstance(got, cupy.ndarray) and torch.equal(torch.from_dlpack(got), want)


@needs_hopper
def test_memory_does_not_grow():
    q, k, v = qkv(sq=128, device="cuda")
    octavo.torch.attention(q, k, v, layout="bhsd")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(10_000):
        octavo.torch.attention(q, k, v, layout="bhsd")
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


@needs_hopper
def test_operands_may_go_while_the_kernels_run():
    want = octavo.torch.attention(*qkv(sq=2000, device="cuda"), layout="bhsd")
    results = [octavo.torch.attention(*qkv(sq=2000, device="cuda"), layout="bhsd") for _ in range(10)]
    assert all(torch.equal(out, want) for out in results)


@needs_hopper
@pytest.mark.parametrize("current", [True, False], ids=["current stream", "side stream"])
def test_memory_of_operands_output_and_workspace_is_used_anew(current):
    problems = [qkv(sq=1500, device="cuda", seed=seed, layout="bshd") for seed in range(4)] * 3
    want = [octavo.attention(*operands) for operands in problems]
    torch.cuda.synchronize()
    results = []
    with torch.cuda.stream(torch.cuda.current_stream() if current else torch.cuda.Stream()):
        for operands in problems:
            q, k, v = (x.clone() for x in operands)
            out = torch.empty_like(q)
            octavo.attention(q, k, v, out=out)
            results.append(out.clone())
            del q, k, v, out
            gc.collect()
            # The allocator has these sizes and smaller ones from what has just been freed, and one from the device.
            others = [torch.full((n,), math.nan, device="cuda") for n in (1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 26)]
            del others
    torch.cuda.synchronize()
    assert all(torch.equal(*pair) for pair in zip(results, want, strict=True))


def attend_in_child(device, engine="auto"):
    operands = qkv(dtype=torch.float32, device=device, layout="bshd")
    if device == "cpu":
        return octavo.attention(*(x.numpy() for x in operands), engine=engine)
    return octavo.attention(*operands, engine=engine).cpu().numpy()


def child(method, *arguments):
    """What attend_in_child() returns in a process of its own, or raises; TimeoutError where it hangs."""
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.apply_async(attend_in_child, arguments).get(timeout=120)


@needs_hopper
def test_a_spawned_process_uses_the_gpu_as_well():
    want = attend_in_child("cuda")
    assert (child("spawn", "cuda") == want).all()


@needs_hopper
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_the_cpu_only():
    attend_in_child("cuda")  # the parent uses CUDA, which a fork does not inherit
    with pytest.raises(RuntimeError, match="fork"):
        child("fork", "cuda")
    assert (child("fork", "cpu", "emulate") == attend_in_child("cpu", "emulate")).all()


@on_devices
def test_threads_at_once(device):
    q, k, v = qkv(device=device)
    want = octavo.torch.attention(q, k, v, layout="bhsd")
    if device == "cuda":
        torch.cuda.synchronize()  # each thread has a current stream of its own kind
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(octavo.torch.attention, q, k, v, layout="bhsd") for _ in range(32)]
        assert all(torch.equal(call.result(), want) for call in calls)


# routing


@on_devices
def test_override_routes_and_reports(device):
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q, k, v = qkv(hkv=4, device=device)
    mask = torch.ones(100, 100, dtype=torch.bool, device=device)
    plain = sdpa(q, k, v)
    with octavo.torch.sdpa_override() as report:
        routed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        masked = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        torch.nn.functional.scaled_dot_product_attention(q[:, :, :1], k, v)
        torch.nn.functional.scaled_dot_product_attention(q.requires_grad_(), k, v)
        q.requires_grad_(False)
    assert torch.nn.functional.scaled_dot_product_attention is sdpa
    assert 0.005 < error(routed, plain) < FP8_ERROR
    assert error(masked, plain) < 0.005
    assert report.calls == 1 and report.kept.total() == 3
    assert all(word in str(report) for word in ("1 of 4", "attn_mask", "query rows", "gradient"))


def test_overrides_end_in_any_order():
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q, k, v = qkv(hkv=4)
    first, second = octavo.torch.sdpa_override(), octavo.torch.sdpa_override()
    first.remove()
    torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert second.remove().calls == 1 and first.report.calls == 0
    assert torch.nn.functional.scaled_dot_product_attention is sdpa


@on_devices
def test_override_under_autocast_and_with_odd_operands(device):
    q, k, v = qkv(hkv=4, dtype=torch.float32, device=device)
    with octavo.torch.sdpa_override() as report:
        with torch.autocast(device, torch.bfloat16):
            out = torch.nn.functional.scaled_dot_product_attention(q, k.bfloat16(), v)
        assert out.dtype == torch.bfloat16 and report.calls == 1
        torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=-0.1)
    assert report.calls == 1 and "scale is -0.1" in str(report)


@on_devices
def test_override_in_16_bits_takes_operands_of_its_type(device):
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q, k, v = qkv(hkv=4, device=device)
    plain = sdpa(q, k, v)
    with octavo.torch.sdpa_override(precision="bf16") as report:
        routed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        half = torch.nn.functional.scaled_dot_product_attention(*(x.half() for x in (q, k, v)))
        torch.nn.functional.scaled_dot_product_attention(q[:, :, :1], k, v)
        with pytest.raises(RuntimeError):  # torch takes no two types at once
            torch.nn.functional.scaled_dot_product_attention(q, k.float(), v)
        with torch.autocast(device, torch.bfloat16):
            torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    assert 1e-4 < error(routed, torch_sdpa(q, k, v)) < 1e-2 and not torch.equal(routed, plain)
    assert half.dtype == torch.float16 and report.calls == 2
    assert sorted(report.kept) == [
        "dtype is torch.float16: must be torch.bfloat16 where precision is bf16",
        "dtypes or devices differ",
        "fewer than 16 query rows, as when decoding: they fill no tile",
    ]


@on_devices
def test_settings_are_read_at_each_call(device):
    q, k, v = qkv(device=device)
    scale = torch.tensor(0.125)
    outputs = []
    for value in (0.125, 1.0):
        scale.fill_(value)
        outputs.append(octavo.attention(q, k, v, layout="bhsd", sm_scale=scale, out=torch.empty_like(q)).clone())
    assert not torch.equal(*outputs)


def test_override_as_a_call():
    sdpa = torch.nn.functional.scaled_dot_product_attention
    override = octavo.torch.sdpa_override(recipe="block")
    try:
        torch.nn.functional.scaled_dot_product_attention(*qkv(hkv=4))
    finally:
        report = override.remove()
    assert report.calls == 1 and torch.nn.functional.scaled_dot_product_attention is sdpa


# errors


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"attn_mask": torch.ones(100, 100, dtype=torch.bool)}, "attn_mask is given"),
        ({"dropout_p": 0.1}, "dropout_p is not 0"),
        ({"enable_gqa": False}, "enable_gqa"),
        ({"precision": "fp16"}, "dtype is torch.bfloat16: must be torch.float16 where precision is fp16"),
    ],
)
def test_sdpa_says_what_it_does_not_compute(change, sentence):
    with pytest.raises(NotImplementedError, match=sentence):
        octavo.torch.scaled_dot_product_attention(*qkv(), **{"enable_gqa": True, **change})


@on_devices
def test_gradients_are_refused(device):
    q, k, v = qkv(device=device)
    with pytest.raises(NotImplementedError, match="q requires a gradient"):
        octavo.torch.attention(q.requires_grad_(), k, v, layout="bhsd")
    with torch.no_grad():
        octavo.torch.attention(q, k, v, layout="bhsd")


@on_devices
@pytest.mark.parametrize(
    "name, value, kind, sentence",
    [
        ("qv", torch.zeros(1), NotImplementedError, "qv is given"),
        ("attention_chunk", 4, NotImplementedError, "attention_chunk is 4"),
        ("window_size", (-5, 0), ValueError, "window|left"),
    ],
)
def test_flash_attention_refuses(device, name, value, kind, sentence):
    with pytest.raises(kind, match=sentence):
        octavo.torch.flash_attn_func(*qkv(device=device, layout="bshd"), **{name: value})


@on_devices
def test_wrong_operands_are_refused(device):
    q, k, v = qkv(device=device, layout="bshd")
    with pytest.raises(ValueError, match="stride"):
        octavo.torch.attention(q.transpose(2, 3).contiguous().transpose(2, 3), k, v)
    with pytest.raises(ValueError, match="k"):
        octavo.torch.attention(q, k[:, :, :, :32], v)
    with pytest.raises(ValueError, match="q_descale is missing"):
        octavo.torch.attention(q.to(torch.float8_e4m3fn), k, v)
    with pytest.raises(ValueError, match="f32, f16"):
        octavo.torch.attention(q.to(torch.int16), k, v)
    with pytest.raises(ValueError, match="k.dtype is f16; must be bf16 where precision is bf16"):
        octavo.torch.attention(q, k.half(), v, precision="bf16")
    with pytest.raises(ValueError, match="recipe is default; must be left out where precision is bf16"):
        octavo.torch.attention(q, k, v, precision="bf16", recipe="default")
    with pytest.raises(ValueError, match="precision is 'bf8'; must be fp8, bf16, fp16 or auto"):
        octavo.torch.attention(q, k, v, precision="bf8")
    if device == "cuda":
        with pytest.raises(NotImplementedError, match="softmax is direct"):
            octavo.torch.attention(q, k, v, softmax="direct", recipe="block+e5m2")


@needs_hopper
def test_operands_on_two_devices_are_refused():
    q, k, v = qkv(device="cuda", layout="bshd")
    with pytest.raises((ValueError, RuntimeError), match="device"):
        octavo.attention(q, k.cpu(), v)
    with pytest.raises(NotImplementedError, match="engine is emulate"):
        octavo.attention(q, k, v, engine="emulate")


@on_devices
def test_no_rows_and_no_keys(device):
    q, k, v = qkv(device=device, layout="bshd")
    assert octavo.torch.attention(q[:, :0], k, v).shape == (2, 0, 4, 64)
    out, lse = octavo.torch.attention(q, k[:, :0], v[:, :0], return_lse=True)
    assert (out == 0).all() and torch.isneginf(lse).all()


@pytest.mark.parametrize("name", ["torch_diffusers", "torch_drop_in", "torch_hugging_face"])
def test_examples(name):
    if name == "torch_hugging_face":
        pytest.importorskip("transformers", reason="transformers is not installed")
    environment = {**os.environ, "PYTHONPATH": str(Path(octavo.__file__).parents[1])}
    script = Path(__file__).parents[2] / "examples/python" / f"{name}.py"
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "octavo computed 2 of" in done.stdout
