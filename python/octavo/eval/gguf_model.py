# SPDX-License-Identifier: Apache-2.0
"""A Llama model in a GGUF file: weights in FP32, tokeniser, and its forward pass in numpy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

Floats = NDArray[np.float32]
Attention = Callable[[int, Floats, Floats, Floats], Floats]  # layer, q, k, v [seq, head, dim] to [seq, head, dim]


def unpermute(weight: Floats, heads: int) -> Floats:
    """Undo the row permutation that llama.cpp's converter applies to attn_q and attn_k.

    Hugging Face Llama models rotate channel i together with channel i + d/2 ("split halves"). llama.cpp rotates
    neighbours 2i and 2i + 1 ("interleaved") for this architecture, so the converter reorders the rows of every head
    from [2, d/2] to [d/2, 2]. Reading them back in the original order gives the Hugging Face model's channels, and
    makes split-half RoPE the right rotation. (Without this step the perplexity is eight times as high.)
    """
    rows, cols = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


class Model:
    """Llama architecture, FP32, one sequence at a time, no KV cache."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.meta = reader.fields
        self._check([t.name for t in reader.tensors])
        self.name = self.get("general.name")
        self.layers = self.get("llama.block_count")
        self.heads = self.get("llama.attention.head_count")
        self.kv_heads = self.get("llama.attention.head_count_kv")
        self.head_dim = self.get("llama.rope.dimension_count")
        self.eps = self.get("llama.attention.layer_norm_rms_epsilon")
        self.theta = self.get("llama.rope.freq_base")
        self.context = self.get("llama.context_length")

        self.w: dict[str, Floats] = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in reader.tensors}
        for i in range(self.layers):
            for part, heads in (("attn_q", self.heads), ("attn_k", self.kv_heads)):
                key = f"blk.{i}.{part}.weight"
                self.w[key] = unpermute(self.w[key], heads)
        self.types = ", ".join(sorted({t.tensor_type.name for t in reader.tensors}))

    def _check(self, tensors: list[str]) -> None:
        """Refuses models that this forward pass or tokeniser would get wrong."""
        for key, known in (("general.architecture", "llama"), ("tokenizer.ggml.pre", "smollm")):
            if self.get(key) != known:
                raise ValueError(f"octavo-eval: the GGUF file's {key} is {self.get(key)!r}; must be {known!r}")
        outside = sorted(name for name in tensors if not name.startswith("blk."))
        if outside != ["output_norm.weight", "token_embd.weight"]:
            raise ValueError(
                f"octavo-eval: the GGUF file has the tensors {outside} outside its layers; must have only "
                "output_norm.weight and token_embd.weight (a tied output head, plain RoPE)"
            )

    def get(self, key: str) -> Any:
        return self.meta[key].contents() if key in self.meta else None

    def tokenizer(self) -> Tokenizer:
        """Byte-level BPE from the GGUF vocabulary; pre-tokeniser "smollm" = digits one by one, then the GPT-2 pattern.
        No BOS token (tokenizer.ggml.add_bos_token is false)."""
        vocab = {token: i for i, token in enumerate(self.get("tokenizer.ggml.tokens"))}
        merges = [tuple(m.split(" ")) for m in self.get("tokenizer.ggml.merges")]
        tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        tok.decoder = decoders.ByteLevel()
        return tok

    def norm(self, x: Floats, name: str) -> Floats:
        y: Floats = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.w[name]
        return y

    def rope(self, x: Floats) -> Floats:
        """Rotate x [seq, head, dim], pairing channel i with i + dim/2; positions start at 0."""
        half = self.head_dim // 2
        freq = self.theta ** (-np.arange(half, dtype=np.float64) / half)
        angle = np.arange(x.shape[0], dtype=np.float64)[:, None, None] * freq
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        lo, hi = x[..., :half], x[..., half:]
        return np.concatenate([lo * cos - hi * sin, hi * cos + lo * sin], axis=-1)

    def forward(self, ids: Any, attention: Attention | None = None) -> Floats:
        """Logits [seq, vocab]. `attention`: causal, of each layer; default: in FP32."""
        seq = len(ids)
        x = self.w["token_embd.weight"][ids]
        for i in range(self.layers):
            b = f"blk.{i}."
            h = self.norm(x, b + "attn_norm.weight")
            q, k, v = ((h @ self.w[f"{b}attn_{n}.weight"].T).reshape(seq, -1, self.head_dim) for n in "qkv")
            out = (attention or exact_attention)(i, self.rope(q), self.rope(k), v)
            x = x + out.reshape(seq, -1) @ self.w[b + "attn_output.weight"].T
            h = self.norm(x, b + "ffn_norm.weight")
            gate = h @ self.w[b + "ffn_gate.weight"].T
            act = gate / (1 + np.exp(-gate)) * (h @ self.w[b + "ffn_up.weight"].T)
            x = x + act @ self.w[b + "ffn_down.weight"].T
        x = self.norm(x, "output_norm.weight")
        logits: Floats = x @ self.w["token_embd.weight"].T  # the output head is tied
        return logits


def exact_attention(layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
    """Causal grouped-query attention in FP32: query head h reads kv head h // group."""
    seq, group = q.shape[0], q.shape[1] // k.shape[1]
    mask = np.triu(np.full((seq, seq), -np.inf, np.float32), 1)
    out = np.empty_like(q)
    for h in range(q.shape[1]):
        s = q[:, h] @ k[:, h // group].T / np.float32(np.sqrt(q.shape[2])) + mask
        p = np.exp(s - s.max(axis=-1, keepdims=True))
        out[:, h] = (p / p.sum(axis=-1, keepdims=True)) @ v[:, h // group]
    return out


def token_losses(logits: Floats, ids: Any) -> NDArray[np.float64]:
    """Negative log-likelihood of tokens 1..n-1, each given all before it."""
    z = logits[:-1].astype(np.float64)
    z -= z.max(axis=-1, keepdims=True)
    losses: NDArray[np.float64] = np.log(np.exp(z).sum(axis=-1)) - z[np.arange(len(z)), ids[1:]]
    return losses
