# SPDX-License-Identifier: Apache-2.0
"""What the tests of the octavo command share: running it, reading its files, attention in numpy.

OCTAVO_BIN names the binary (default: build/cpu/cli/octavo).
"""

import json
import math
import os
import struct
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors

ROOT = Path(__file__).resolve().parents[2]
OCTAVO = Path(os.environ.get("OCTAVO_BIN", ROOT / "build/cpu/cli/octavo")).resolve()
RECIPES = ["per_tensor", "per_head", "block", "fp8", "default", "strict_causal"]

NUMPY_TYPES = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


def octavo(*arguments, code=0, env=None):
    """Runs the command; its exit code must be `code`."""
    done = subprocess.run(
        [OCTAVO, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def refused(*arguments):
    """The sentence of a call that must end with exit code 2: one line, nothing on stdout."""
    done = octavo(*arguments, code=2)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("octavo: "), done.stderr
    return lines[0]


def load(path):
    """Tensors by name, read by the safetensors package."""
    tensors = {}
    for name, info in safetensors.deserialize(Path(path).read_bytes()):
        dtype = NUMPY_TYPES[info["dtype"]]
        tensors[name] = np.frombuffer(info["data"], dtype=dtype).reshape(info["shape"])
    return tensors


def metadata(path):
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]).get("__metadata__", {})


def attention(q, k, v, causal=False, window=None, softcap=None, lengths=None, scale=None):
    """Float64 attention on [b, s, h, d]; returns out and lse [b, h, s]."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    b, sq, hq, d = q.shape
    sk, hkv = k.shape[1], k.shape[2]
    left, right = window or (math.inf, 0 if causal else math.inf)
    out = np.zeros((b, sq, hq, v.shape[3]))
    lse = np.full((b, hq, sq), -np.inf)
    for i in range(b):
        keys = sk if lengths is None else lengths[i]
        offset = np.arange(keys)[None, :] - (np.arange(sq)[:, None] + keys - sq)
        visible = (offset >= -left) & (offset <= right)
        some = visible.any(axis=1)
        for h in range(hq):
            kv = h // (hq // hkv)
            s = q[i, :, h] @ k[i, :keys, kv].T * (scale or d**-0.5)
            if softcap:
                s = softcap * np.tanh(s / softcap)
            s = np.where(visible, s, -np.inf)[some]
            if s.size == 0:
                continue
            top = s.max(axis=1, keepdims=True)
            p = np.exp(s - top)
            total = p.sum(axis=1, keepdims=True)
            out[i, some, h] = p @ v[i, :keys, kv] / total
            lse[i, h, some] = (top + np.log(total))[:, 0]
    return out, lse


def relative_l2(got, want):
    got = np.asarray(got, dtype=np.float64)
    return np.linalg.norm(got - want) / np.linalg.norm(want)
