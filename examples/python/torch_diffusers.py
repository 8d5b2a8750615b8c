# SPDX-License-Identifier: Apache-2.0
"""A block of an image or video diffusion transformer with OctavoAttnProcessor: self-attention over all tokens and
cross-attention to 77 tokens of text, both in FP8.

The block is diffusers' BasicTransformerBlock, where diffusers is installed, else a small one with the same parts. Its
weights are random, so that nothing is downloaded. Runs on a Hopper GPU, or slowly on the CPU. Needs PyTorch.
"""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from octavo.diffusers import OctavoAttnProcessor

HEADS, DIM, TEXT_WIDTH = 8, 64, 768


class Attention(nn.Module):
    """What OctavoAttnProcessor needs of diffusers' class of this name."""

    def __init__(self, width: int, context_width: int) -> None:
        super().__init__()
        self.heads = HEADS
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k, self.to_v = (nn.Linear(context_width, width, bias=False) for _ in range(2))
        self.to_out = nn.ModuleList([nn.Linear(width, width), nn.Dropout(0.0)])
        # No call has as many query rows as this one asks for: torch computes all of them.
        self.set_processor(OctavoAttnProcessor(min_queries=1 << 30))

    def set_processor(self, processor: OctavoAttnProcessor) -> None:
        self.processor = processor

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor | None = None) -> Tensor:
        return self.processor(self, hidden_states, encoder_hidden_states)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.attn1, self.attn2 = Attention(width, width), Attention(width, TEXT_WIDTH)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        x = hidden_states + self.attn1(self.norms[0](hidden_states))
        x = x + self.attn2(self.norms[1](x), encoder_hidden_states)
        out: Tensor = x + self.mlp(self.norms[2](x))
        return out


def new_block() -> Any:
    if importlib.util.find_spec("diffusers") is None:
        print("diffusers is not installed (pip install diffusers): a small block with the same parts takes its place")
        return Block(HEADS * DIM)
    attention: Any = importlib.import_module("diffusers.models.attention")
    return attention.BasicTransformerBlock(HEADS * DIM, HEADS, DIM, cross_attention_dim=TEXT_WIDTH)


def make_distinct(block: Any) -> None:
    """Q and K from N(0, 1). As torch initialises layers, every token attends to all others alike, and the bias of the
    projection hides the rest."""
    for attention in (block.attn1, block.attn2):
        for layer in (attention.to_q, attention.to_k):
            nn.init.normal_(layer.weight, std=layer.weight.shape[1] ** -0.5)
        nn.init.zeros_(attention.to_out[0].bias)


def outputs(block: Any, image: Tensor, text: Tensor) -> list[Tensor]:
    """Those of self-attention, of cross-attention and of the whole block."""
    found: list[Tensor] = []
    modules = (block.attn1, block.attn2, block)
    hooks = [module.register_forward_hook(lambda _module, _inputs, y: found.append(y)) for module in modules]
    block(image, encoder_hidden_states=text)
    for hook in hooks:
        hook.remove()
    return found


def milliseconds(call: Callable[[], object], calls: int = 20) -> float:
    """A call's time on the GPU, after one for warming up."""
    call()
    event: Any = torch.cuda.Event  # which has no types
    start, end = (event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / calls


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, tokens = (2, 16384) if device == "cuda" else (1, 2048)
    torch.manual_seed(0)
    block = new_block().to(device, torch.bfloat16).eval()
    make_distinct(block)
    image = torch.randn(batch, tokens, HEADS * DIM, device=device, dtype=torch.bfloat16)
    text = torch.randn(batch, 77, TEXT_WIDTH, device=device, dtype=torch.bfloat16)

    def run() -> object:
        return block(image, encoder_hidden_states=text)

    with torch.no_grad():
        want = outputs(block, image, text)
        before = milliseconds(run) if device == "cuda" else None
        processor = OctavoAttnProcessor()
        for attention in (block.attn1, block.attn2):
            attention.set_processor(processor)
        got = outputs(block, image, text)
        print(f"{device}, {tokens} tokens, {type(block).__name__}")
        print(processor.report)
        for name, mine, torchs in zip(("self-attention", "cross-attention", "block"), got, want, strict=True):
            cosine = nn.functional.cosine_similarity(mine.double().flatten(), torchs.double().flatten(), dim=0)
            print(f"{name:15} cosine with torch's {cosine.item():.5f}")
        if before is not None:
            print(f"the block takes {milliseconds(run):.2f} ms, with torch's attention {before:.2f} ms")


if __name__ == "__main__":
    main()
