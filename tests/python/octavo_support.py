# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share. They skip where it is not built.

OCTAVO_PYTHON names the folder that holds the built package, and then it must be there.
"""

import os
import sys

import ml_dtypes
import numpy as np
import pytest

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # "auto" leads to the CPU here, also on a machine with a GPU

if "OCTAVO_PYTHON" in os.environ:
    sys.path.insert(0, os.path.abspath(os.environ["OCTAVO_PYTHON"]))
    import octavo
else:
    octavo = pytest.importorskip(
        "octavo", reason="the Python package is neither built (OCTAVO_PYTHON) nor installed", exc_type=ImportError
    )

DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
RECIPES = ["per_tensor", "per_head", "block", "fp8", "default", "strict_causal"]


def qkv(b=2, sq=70, sk=130, hq=4, hkv=2, d=64, dv=None, dtype="f32", seed=0):
    """Standard normal operands [b, s, h, d]."""
    rng = np.random.default_rng(seed)
    shapes = ((b, sq, hq, d), (b, sk, hkv, d), (b, sk, hkv, dv or d))
    return tuple(rng.standard_normal(shape, np.float32).astype(DTYPES[dtype]) for shape in shapes)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Tensor:
    """An array of another framework: nothing but DLPack, a type that numpy does not know, a device."""

    def __init__(self, array, dtype, device=(1, 0), requires_grad=False):
        self.array, self.dtype, self.shape = array, dtype, array.shape
        self.device, self.requires_grad = device, requires_grad

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.device
