# SPDX-License-Identifier: Apache-2.0
"""What the Python package refuses: type of the exception and whole sentence."""

import ml_dtypes
import numpy as np
import pytest
from octavo_support import Tensor, octavo, qkv

Q, K, V = qkv()
BITS = Q.astype(np.float16).view(np.uint16)
READ_ONLY = np.zeros_like(Q)
READ_ONLY.flags.writeable = False
UNALIGNED = np.zeros(Q.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(Q.shape)
FIELD = np.zeros(Q.shape, [("a", "f4"), ("b", "u1")])["a"]
E4M3 = Q.astype(ml_dtypes.float8_e4m3fn)
ONE = np.ones(1, np.float32)
K8 = octavo.QuantizedTensor(K.astype(ml_dtypes.float8_e4m3fn), ONE)
TYPES = "f32, f16, bf16, f8_e4m3, f8_e5m2 or i8"
BF16 = {name: x.astype(ml_dtypes.bfloat16) for name, x in zip("qkv", (Q, K, V), strict=True)}
IN_BF16 = {**BF16, "precision": "bf16"}
NO_ARRAY = "must be an array with DLPack or a buffer, with strides in whole elements"

# (arguments that differ from a good call, exception, sentence)
REFUSED = [
    # arrays
    ({"q": list(Q)}, TypeError, f"q is a list; {NO_ARRAY}"),
    ({"v": None}, TypeError, f"v is a NoneType; {NO_ARRAY}"),
    ({"q": FIELD}, TypeError, f"q is a ndarray; {NO_ARRAY}"),
    ({"q": Q.astype(np.float64)}, ValueError, f"q.dtype is float64; must be {TYPES}"),
    ({"k": K.astype(np.int32)}, ValueError, f"k.dtype is int32; must be {TYPES}"),
    ({"k": K > 0}, ValueError, f"k.dtype is bool; must be {TYPES}"),
    ({"q": Q.astype(">f4")}, ValueError, "q.dtype is >f4; must be in this machine's byte order"),
    ({"q": Q.astype(ml_dtypes.float8_e4m3fnuz)}, ValueError, f"q.dtype is float8_e4m3fnuz; must be {TYPES}"),
    ({"q": BITS}, ValueError, f"q.dtype is uint16; must be {TYPES}, or dtype must say which of them it holds"),
    ({"dtype": "bf16"}, ValueError, "q.dtype is f32; must be bf16, as dtype says, or its bytes (uint8, uint16)"),
    ({"q": E4M3, "dtype": "bf16"}, ValueError, "q.dtype is f8_e4m3; must be bf16, as dtype says"),
    ({"dtype": ("f32",)}, ValueError, "dtype has 1 entries; must be one type, or those of q, k and v"),
    ({"q": Q[0]}, ValueError, "q.rank is 3; must be 4"),
    ({"q": Q[None]}, ValueError, "q.rank is 5; must be from 1 to 4"),
    ({"v": V[..., 0]}, ValueError, "v.rank is 3; must be 4"),
    ({"q": Q[..., ::2]}, ValueError, "q.stride[3] is 2; must be 1 (a contiguous last dimension)"),
    ({"q": Q[:, ::-1]}, ValueError, "q.stride[1] is -256; must not be negative"),
    ({"q": UNALIGNED}, ValueError, "q.data is not aligned; must be at a multiple of its elements' 4 bytes"),
    ({"k": K[:, :, :, :32]}, ValueError, "k.shape[3] is 32; must equal q.shape[3] (64)"),
    ({"q": Q[:, :, :3]}, ValueError, "q.shape[2] is 3; must be a multiple of k.shape[2] (2)"),
    ({"q": Tensor(Q, "other.float32", requires_grad=True)}, NotImplementedError,
     "q requires a gradient; must be detached or under torch.no_grad(), since there is no backward pass"),
    # output
    ({"out": READ_ONLY}, ValueError, "out is read-only; must be writable"),
    ({"out": type("Array", (Tensor,), {"__module__": "jaxlib._jax"})(Q, "float32")}, ValueError,
     "out is read-only; must be writable"),
    ({"out": UNALIGNED}, ValueError, "out.data is not aligned; must be at a multiple of its elements' 4 bytes"),
    ({"out": np.zeros((2, 70, 2, 64), np.float32)}, ValueError, "out.shape[2] is 2; must equal q.shape[2] (4)"),
    ({"out": np.zeros_like(E4M3)}, ValueError, "out.dtype is f8_e4m3; must be f32, f16 or bf16"),
    ({"out": np.zeros_like(Q), "out_dtype": "f16"}, ValueError,
     "out.dtype is f32; must be f16, as dtype says, or its bytes (uint8, uint16)"),
    ({"out_dtype": "f8_e4m3"}, ValueError, "out_dtype is f8_e4m3; must be f32, f16 or bf16"),
    ({"out_dtype": np.float64}, ValueError, "out_dtype is float64; must be f32, f16 or bf16"),
    # values
    ({"layout": "sbhd"}, ValueError, "layout is 'sbhd'; must be bshd or bhsd"),
    ({"window": 3}, ValueError, "window is 3; must be a pair (left, right), None for no limit"),
    ({"window": (3, 0.5)}, TypeError, "window[1] is 0.5; must be an integer"),
    ({"window": (-2, 0)}, ValueError, "mask.left is -2; must be -1 (unlimited) or a number of keys"),
    ({"window": (3, 0), "causal": True}, ValueError,
     "causal is True; must be False beside window ((3, 0)): a call has one mask"),
    ({"softcap": -1}, ValueError, "softcap is -1; must be 0 (off) or positive and finite"),
    ({"softcap": "a"}, TypeError, "softcap is 'a'; must be a number"),
    ({"sm_scale": 0}, ValueError, "sm_scale is 0; must be positive and finite"),
    ({"promote_every": -1}, ValueError, "promote_every is -1; must be a number of key tiles, or 0 for never"),
    ({"num_splits": 65}, ValueError, "num_splits is 65; must be 1 to 64"),
    ({"num_splits": 2**40}, ValueError, "num_splits is 1099511627776; must fit 32 bits"),
    ({"num_splits": 1.5}, TypeError, "num_splits is 1.5; must be an integer"),
    ({"threads": -1}, ValueError, "threads is -1; must be 0 (one per core) or positive"),
    ({"key_lengths": [1]}, ValueError, "key_lengths.size is 1; must equal the batch (2)"),
    ({"key_lengths": [1, 131]}, ValueError, "key_lengths[1] is 131; must be from 0 to k.shape[1] (130)"),
    ({"key_lengths": []}, ValueError,
     "key_lengths is empty; must have an entry a batch entry, or be None for all keys"),
    ({"recipe": 3}, TypeError, "recipe is 3; must be a string"),
    ({"engine": "tpu"}, ValueError, "engine is 'tpu'; must be one of auto, sm90, emulate, reference"),
    # 16 bits
    ({"precision": 16}, TypeError, "precision is 16; must be a string"),
    ({"precision": "bf16"}, ValueError, "q.dtype is f32; must be bf16 where precision is bf16"),
    ({**IN_BF16, "k": K}, ValueError, "k.dtype is f32; must be bf16 where precision is bf16"),
    ({**IN_BF16, "k": K8}, ValueError, "k.dtype is f8_e4m3; must be bf16 where precision is bf16"),
    ({**IN_BF16, "precision": "fp16"}, ValueError, "q.dtype is bf16; must be f16 where precision is fp16"),
    ({**IN_BF16, "recipe": "block"}, ValueError, "recipe is block; must be left out where precision is bf16"),
    ({**IN_BF16, "softmax": "direct"}, ValueError, "softmax is direct; must be exact where precision is bf16"),
    ({**IN_BF16, "promote_every": 0}, ValueError, "promote_every is 0; must be 1 where precision is bf16"),
    # FP8 operands
    ({"q": E4M3}, ValueError,
     "q_descale is missing; must be given, since q is f8_e4m3 (a descale of 1 is never assumed): "
     "pass QuantizedTensor(q, descale)"),
    ({"k": K8, "recipe": "default"}, ValueError,
     "recipe is default; must not rotate where q or k is quantised already: both turn, or neither"),
    ({"k": octavo.QuantizedTensor(K8.codes, ONE.astype(np.float16))}, ValueError,
     "k_descale.dtype is f16; must be f32"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "exception", "sentence"), REFUSED, ids=[s[:40] for _, _, s in REFUSED])
def test_refusals(changes, exception, sentence):
    with pytest.raises(exception) as found:
        octavo.attention(**{"q": Q, "k": K, "v": V, **changes})
    assert str(found.value) == f"attention_forward: {sentence}"
    assert type(found.value) is exception


def test_sentences_without_a_function():
    with pytest.raises(ValueError) as found:
        octavo.attention(Q, K, V, recipe="fast")
    assert str(found.value).startswith("recipe is 'fast'; must be one of per_tensor, per_head, block, fp8, default, ")
    with pytest.raises(ValueError) as found:
        octavo.attention(Q, K, V, dtype="f9")
    assert str(found.value) == "dtype is 'f9'; must be one of f32, f16, bf16, f8_e4m3, f8_e5m2, i8"
    for option in ("precision", "softmax", "accumulator"):
        with pytest.raises(ValueError, match=f"{option} is 'fast'; must be "):
            octavo.attention(Q, K, V, **{option: "fast"})


def test_axes_are_named_for_bhsd():
    turned = [x.swapaxes(1, 2) for x in (Q[:, :, :3], K, V)]
    with pytest.raises(ValueError) as found:
        octavo.attention(*turned, layout="bhsd")
    assert str(found.value).endswith("must be a multiple of k.shape[2] (2) (axes counted in [b, s, h, d])")


def test_arrays_in_memory_of_other_devices():
    """A capsule that says so: there is no such device here to make one."""
    import ctypes

    class Capsule:
        def __dlpack__(self, **_):
            capsule = Q.__dlpack__()
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            tensor = get(capsule, b"dltensor")
            ctypes.c_int32.from_address(tensor + 8).value = 10  # ROCm, DLTensor::device.device_type
            return capsule

    with pytest.raises(NotImplementedError) as found:
        octavo.attention(Capsule(), K, V)
    assert str(found.value) == (
        "attention_forward: q is in device memory (DLPack device type 10); must be in host memory or "
        "that of a CUDA device"
    )


def test_engines_that_are_not_there():
    reason = octavo.why_unsupported(Q, K, V, engine="sm90")
    assert reason == octavo.info()["device"]
    with pytest.raises(NotImplementedError) as found:
        octavo.attention(Q, K, V, engine="sm90")
    assert str(found.value) == f"attention_forward: no engine computes this call: sm90: {reason}"
    assert octavo.why_unsupported(**IN_BF16, engine="sm90") == reason
    with pytest.raises(NotImplementedError, match="^quantize.*sm90: "):
        octavo.quantize(Q, K, V, engine="sm90")


def test_why_unsupported_refuses_what_attention_refuses():
    with pytest.raises(ValueError, match="^attention_forward: q.dtype is f32; must be f16 where precision is fp16$"):
        octavo.why_unsupported(Q, K, V, precision="fp16")


def test_quantize_refuses():
    with pytest.raises(ValueError, match=r"^quantize: engine is 'reference'; must be one of auto, sm90, emulate$"):
        octavo.quantize(Q, K, V, engine="reference")
    with pytest.raises(ValueError, match=r"^quantize: q.dtype is f8_e4m3; must be f32, f16 or bf16$"):
        octavo.quantize(E4M3, K, V)
    with pytest.raises(ValueError, match=r"^quantize: k.rank is 3; must be 4$"):
        octavo.quantize(Q, K[0], V)
    with pytest.raises(TypeError, match=r"^quantize: v is a int; must be an array"):
        octavo.quantize(Q, K, 3)


def test_quantized_tensors_refuse():
    with pytest.raises(ValueError, match=r"^QuantizedTensor: codes.dtype is f32; must be f8_e4m3, f8_e5m2 or i8$"):
        octavo.QuantizedTensor(Q, ONE)
    with pytest.raises(ValueError, match=r"^QuantizedTensor: codes.dtype is uint8; must be .* dtype must say which"):
        octavo.QuantizedTensor(Q.view(np.uint8), ONE)
    with pytest.raises(ValueError, match=r"^QuantizedTensor: codes.rank is 3; must be 4$"):
        octavo.QuantizedTensor(E4M3[0], ONE)
    with pytest.raises(TypeError, match=r"^attention_quantized: qkv is a tuple; must be a QuantizedQkv$"):
        octavo.attention_quantized((Q, K, V))
    with pytest.raises(AttributeError):
        K8.codes = Q


def test_nothing_is_written_on_an_error():
    out = np.full_like(Q, 7)
    with pytest.raises(ValueError):
        octavo.attention(Q, K, V, out=out, key_lengths=[1, 131])
    assert (out == 7).all()
