# SPDX-License-Identifier: Apache-2.0
"""What the tests of octavo.torch share. They skip where PyTorch is not installed, and run on the GPU where there is one."""

import os
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if "OCTAVO_PYTHON" in os.environ:
    sys.path.insert(0, os.path.abspath(os.environ["OCTAVO_PYTHON"]))
pytest.importorskip("octavo", reason="the Python package is neither built (OCTAVO_PYTHON) nor installed")

import octavo.torch  # noqa: E402

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
DEVICES = ["cpu", "cuda"] if HOPPER else ["cpu"]
needs_hopper = pytest.mark.skipif(not HOPPER, reason="needs a GPU of compute capability 9.0 that PyTorch sees")
on_devices = pytest.mark.parametrize("device", DEVICES)


def qkv(b=2, sq=100, sk=None, hq=4, hkv=2, d=64, dv=None, dtype=torch.bfloat16, device="cpu", seed=0, layout="bhsd"):
    generator = torch.Generator().manual_seed(seed)
    sk = sk or sq

    def one(h, s, d):
        shape = (b, h, s, d) if layout == "bhsd" else (b, s, h, d)
        return torch.randn(shape, generator=generator).to(device, dtype)

    return one(hq, sq, d), one(hkv, sk, d), one(hkv, sk, dv or d)


def error(got, want):
    got, want = got.double().cpu(), want.double().cpu()
    return ((got - want).norm() / want.norm()).item()


def torch_sdpa(q, k, v, **arguments):
    """torch's own, in double precision on the CPU."""
    q, k, v = (x.double().cpu() for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **arguments)
