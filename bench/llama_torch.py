# SPDX-License-Identifier: Apache-2.0
"""A Llama of random weights with its attention calls in Octavo: how close, and how fast, against cuDNN in BF16.

Both runs go through torch's scaled_dot_product_attention, the second with octavo.torch.sdpa_override(). Needs a Hopper
GPU, PyTorch and transformers.

    python bench/llama_torch.py [--layers 16] [--length 8192] [--precision fp8] [--softmax exact] [--json OUT.json]
"""

import argparse
import json
from typing import Any

import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

import octavo.torch

Tensors = list[torch.Tensor]


class Watch:
    """Stands before whatever computes attention: keeps outputs, and events around each call."""

    def __init__(self) -> None:
        self.outputs: Tensors = []
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._inner = torch.nn.functional.scaled_dot_product_attention
        torch.nn.functional.scaled_dot_product_attention = self

    def __call__(self, *arguments: Any, **named: Any) -> torch.Tensor:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        out = self._inner(*arguments, **named)
        end.record()
        self.events.append((begin, end))
        self.outputs.append(out.detach())
        return out

    def remove(self) -> float:
        """Milliseconds of all calls."""
        torch.nn.functional.scaled_dot_product_attention = self._inner
        torch.cuda.synchronize()
        return sum(begin.elapsed_time(end) for begin, end in self.events)


def run(model: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, Tensors, float]:
    """Final hidden state, each layer's attention output, and the shortest of three runs' attention time in ms."""
    times = []
    for _ in range(3):
        watch = Watch()
        with torch.no_grad():
            hidden = model(tokens, use_cache=False).last_hidden_state
        times.append(watch.remove())
    return hidden, watch.outputs, min(times[1:])


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return torch.nn.functional.cosine_similarity(a.float().flatten(), b.float().flatten(), dim=0).item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--precision", default="fp8", choices=["fp8", "bf16", "auto"])
    parser.add_argument("--softmax", default="exact", choices=["exact", "direct"])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    config = transformers.LlamaConfig(
        hidden_size=4096, intermediate_size=11008, num_hidden_layers=arguments.layers, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=arguments.length, vocab_size=32000, attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = transformers.AutoModel.from_config(config, dtype=torch.bfloat16).eval()
        tokens = torch.randint(0, config.vocab_size, (1, arguments.length))

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        want, want_outputs, torch_ms = run(model, tokens)
    with octavo.torch.sdpa_override(precision=arguments.precision, softmax=arguments.softmax) as report:
        got, outputs, octavo_ms = run(model, tokens)
    print(report)
    cosines = [cosine(a, b) for a, b in zip(outputs, want_outputs, strict=True)]
    result = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "layers": arguments.layers,
        "length": arguments.length,
        "precision": arguments.precision,
        "softmax": arguments.softmax,
        "attention_cosine_per_layer": cosines,
        "hidden_state_cosine": cosine(got, want),
        "cudnn_ms": torch_ms,
        "octavo_ms": octavo_ms,
        "ratio": torch_ms / octavo_ms,
    }
    print(f"cosine of attention outputs: lowest {min(cosines):.5f} (layer {cosines.index(min(cosines))})")
    print(f"cosine of the final hidden state: {result['hidden_state_cosine']:.5f}")
    print(f"attention: cuDNN {torch_ms:.2f} ms, octavo {octavo_ms:.2f} ms, {result['ratio']:.2f} times")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
