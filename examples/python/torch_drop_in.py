# SPDX-License-Identifier: Apache-2.0
"""A transformer block whose attention calls go to FP8, without a change to it: a video or image diffusion
transformer's, of random weights, with self-attention over all tokens and cross-attention to a text of another length.

Runs on a Hopper GPU, or slowly on the CPU. Needs PyTorch.
"""

import torch
from torch import Tensor, nn

import octavo.torch


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(context), self.v(context)
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        y: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return y


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.cross = Attention(width, heads), Attention(width, heads)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.attention(y, y)
        x = x + self.cross(self.norms[1](x), text)
        out: Tensor = x + self.mlp(self.norms[2](x))
        return out


def main() -> None:
    gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
    device, tokens = ("cuda", 16384) if gpu else ("cpu", 256)
    torch.manual_seed(0)
    block = Block(1024, 8).to(device, torch.bfloat16).eval()
    video = torch.randn(1, tokens, 1024, device=device, dtype=torch.bfloat16)
    text = torch.randn(1, 77, 1024, device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        want = block(video, text)
        with octavo.torch.sdpa_override() as report:
            got = block(video, text)
    print(report)
    error = (got - want).float().norm() / want.float().norm()
    print(f"{device}, {tokens} tokens: the block's output differs by {100 * error:.2f} %")


if __name__ == "__main__":
    main()
