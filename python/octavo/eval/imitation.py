# SPDX-License-Identifier: Apache-2.0
"""FP8 attention imitated in FP32 by PyTorch, so that single stages can be rounded and the others not.

The stages are those of docs/data_path.md: smooth, rotate, scale and cast of Q and K; scale and cast of V a block of 128
keys; P against the running maximum of its tile of 128 keys. Sums are FP32: the accumulators of the tensor cores are
not imitated. Causal.
"""

import torch
from torch import Tensor

from .variants import Imitation

_TILE = 128
_LARGEST = {"e4m3": 448.0, "int8": 127.0}


def attention(variant: Imitation, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """q [b, hq, s, d], k, v [b, hkv, s, d] to [b, hq, s, d] in q's type; a group of query heads at a time."""
    group = q.shape[1] // k.shape[1]
    heads = range(k.shape[1])
    out = [_group(variant, q[:, h * group : (h + 1) * group], k[:, h : h + 1], v[:, h : h + 1], scale) for h in heads]
    return torch.cat(out, 1).to(q.dtype)


def _group(variant: Imitation, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    q, k, v = q.float(), k.float(), v.float()
    if variant.smooth:
        k = k - k.mean(2, keepdim=True)  # shifts all scores of a row alike: softmax does not see it
    if variant.rotate:
        rotation = _rotation(q.shape[3], q.device)
        q, k = q @ rotation, k @ rotation
    if "q" in variant.rounded:
        q = rounded(q, 1 if variant.q_scales == "token" else 64, variant.qk)
    if "k" in variant.rounded:
        k = rounded(k, 1 if variant.k_scales == "token" else _TILE, variant.qk)
    if "v" in variant.rounded:
        v = rounded(v, _TILE, variant.pv)
    s = q @ k.mT * scale
    s += torch.full(s.shape[2:], float("-inf"), device=s.device).triu(1)
    p = torch.exp(s - s.amax(-1, keepdim=True))
    weights = _rounded_weights(s) if "p" in variant.rounded else p
    return weights @ v / p.sum(-1, keepdim=True)


def _rounded_weights(s: Tensor) -> Tensor:
    """exp(s - the row's maximum), rounded where the maximum so far stands for 1."""
    so_far = torch.stack([x.amax(-1) for x in torch.split(s, _TILE, -1)], -1).cummax(-1).values
    largest = so_far.repeat_interleave(_TILE, -1)[..., : s.shape[-1]]
    p = torch.exp(s - largest).mul_(_LARGEST["e4m3"]).to(torch.float8_e4m3fn).float()
    return p.mul_(torch.exp(largest - so_far[..., -1:]).div_(_LARGEST["e4m3"]))


def rounded(x: Tensor, rows: int, format: str) -> Tensor:
    """x [b, h, s, d] to codes and back, a scale for each `rows` rows."""
    padded = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[2] % rows))
    blocks = padded.reshape(*x.shape[:2], -1, rows, x.shape[3])
    step = blocks.abs().amax((3, 4), keepdim=True).clamp_min(2.0**-110) / _LARGEST[format]
    codes = blocks / step
    codes = codes.round() if format == "int8" else codes.to(torch.float8_e4m3fn).float()
    values: Tensor = codes * step
    return values.reshape(padded.shape)[:, :, : x.shape[2]]


def _rotation(d: int, device: torch.device) -> Tensor:
    """Random signs and a Hadamard matrix over the largest power of two that divides d; orthogonal."""
    n = d & -d
    matrix = torch.ones(1, 1, device=device)
    while matrix.shape[0] < n:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    signs = torch.randint(0, 2, (d,), generator=torch.Generator().manual_seed(1)).to(device) * 2.0 - 1
    rotation: Tensor = signs[:, None] * torch.kron(torch.eye(d // n, device=device), matrix) / n**0.5
    return rotation
