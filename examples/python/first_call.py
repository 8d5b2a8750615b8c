# SPDX-License-Identifier: Apache-2.0
"""FP8 attention on numpy arrays, its error, and the same call in two steps. Needs no GPU."""

import ml_dtypes
import numpy as np

import octavo


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    difference = got.astype(np.float64) - want.astype(np.float64)
    return float(np.linalg.norm(difference) / np.linalg.norm(want.astype(np.float64)))


def main() -> None:
    rng = np.random.default_rng(0)
    # 8 query heads share 2 heads of K and V; [batch, sequence, heads, head dim]
    q = rng.standard_normal((1, 512, 8, 64)).astype(ml_dtypes.bfloat16)
    k = rng.standard_normal((1, 512, 2, 64)).astype(ml_dtypes.bfloat16)
    v = rng.standard_normal((1, 512, 2, 64)).astype(ml_dtypes.bfloat16)

    exact = octavo.attention(q, k, v, causal=True, engine="reference", out_dtype="f32")
    for recipe in octavo.info()["recipes"]:
        out = octavo.attention(q, k, v, causal=True, recipe=recipe, out_dtype="f32")
        print(f"{recipe:14} relative error {100 * relative_error(out, exact):.2f} %")

    # K and V can be kept as codes and descales, in half the memory, and attended later.
    qkv = octavo.quantize(q, k, v, recipe="block")
    out, lse = octavo.attention_quantized(qkv, causal=True, return_lse=True)
    print(f"quantised     {qkv.k}, out {out.dtype} {list(out.shape)}, lse {list(lse.shape)}")


if __name__ == "__main__":
    main()
