# SPDX-License-Identifier: Apache-2.0
"""What a call costs the CPU: from Python to the launch, warm, on one thread. Needs a Hopper GPU and PyTorch.

    python bench/python_calls.py [OUT.json]
"""

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

import octavo
import octavo.torch

CALLS, ROUNDS = 200, 25


def microseconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median over rounds of the time a call takes to return. Rounds take turns, so that all see the same clocks; the GPU is
    idle before each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    torch.cuda.synchronize()
    return {name: statistics.median(rounds[2:]) for name, rounds in times.items()}


def main() -> None:
    # So small that the GPU keeps up and the CPU's time is what is seen.
    q, k, v = (torch.randn(1, 64, 1, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    out = torch.empty_like(q)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    x = torch.zeros(1, device="cuda")
    calls: dict[str, Callable[[], object]] = {
        "octavo.attention": lambda: octavo.attention(q, k, v),
        "octavo.attention, out given": lambda: octavo.attention(q, k, v, out=out),
        "octavo.attention, recipe block": lambda: octavo.attention(q, k, v, recipe="block"),
        "octavo.attention, bf16": lambda: octavo.attention(q, k, v, precision="bf16"),
        "octavo.torch.attention, bf16": lambda: octavo.torch.attention(q, k, v, precision="bf16"),
        "octavo.torch.attention": lambda: octavo.torch.attention(q, k, v),
        "octavo.torch.scaled_dot_product_attention": lambda: octavo.torch.scaled_dot_product_attention(*heads_first),
        "torch x.add_(1), for scale": lambda: x.add_(1),
        "torch scaled_dot_product_attention": lambda: sdpa(*heads_first),
    }
    results = microseconds(calls)
    for name, us in results.items():
        print(f"{name:44} {us:6.1f} us a call")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            where = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
            json.dump({**where, "us": results}, file, indent=1)


if __name__ == "__main__":
    main()
