#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's scaled_dot_product_attention with the cuDNN backend, BF16, on this machine's GPU, at the
36 points of `octavo bench gpu`: what users have without installing anything.

    python3 bench/sdpa_torch.py [OUT.json] [--reps N]
"""
import argparse
import json
import statistics
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, HIDDEN = 16384, 2048


def median_us(call, reps):
    """After a pause, in which the board cools down, runs are queued before the first is waited for, so that the
    GPU never waits for the CPU: as in cli/gpu_timing.h."""
    torch.cuda.synchronize()
    time.sleep(0.25)
    for _ in range(3):
        call()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(reps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(1e3 * a.elapsed_time(b) for a, b in zip(marks, marks[1:]))


def point(d, s, causal, reps):
    shape = (TOKENS // s, HIDDEN // d, s, d)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        us = median_us(
            lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal), reps)
    pairs = s * (s + 1) / 2 if causal else s * s
    return {"d": d, "s": s, "causal": causal, "us": us,
            "tflops": 4 * TOKENS // s * (HIDDEN // d) * pairs * d / us * 1e-6}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?")
    parser.add_argument("--reps", type=int, default=20)
    args = parser.parse_args()
    results = []
    for d in (64, 128, 256):
        for causal in (False, True):
            for s in (512, 1024, 2048, 4096, 8192, 16384):
                try:
                    results.append(point(d, s, causal, args.reps))
                except RuntimeError as error:
                    print(f"d{d} s{s} causal={causal}: {error}".splitlines()[0])
                    continue
                r = results[-1]
                print(f"d{d} s{s}{' causal' if causal else ''}: {r['us']:.1f} us, {r['tflops']:.0f} TFLOPS")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as out:
            json.dump({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                       "device": torch.cuda.get_device_name(), "results": results}, out, indent=2)


if __name__ == "__main__":
    main()
