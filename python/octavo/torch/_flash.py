# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3's entry points, by its argument names."""

from typing import Any

import torch
from torch import Tensor

from ._ops import attention


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """FlashAttention-3's flash_attn_func, computed in 8 bits.

    q            [b, sq, hq, d], k [b, sk, hkv, d], v [b, sk, hkv, dv]: float16 or bfloat16, quantised by the recipe
                 "default"; or float8_e4m3fn with q_descale, k_descale, v_descale [b, hkv]. Output [b, sq, hq, dv] in
                 the type of q, bfloat16 where that is 8 bits; with return_attn_probs also the LSE [b, hq, sq]
    causal       aligned with the last keys, like window_size (left, right; -1: no limit)
    num_splits   0 (a heuristic there) is 1
    pack_gqa, deterministic, sm_margin
                 hints of speed there; taken and not needed: the forward pass is deterministic

    Raises NotImplementedError for qv and attention_chunk, and where an operand requires a gradient.
    """
    _refuse(qv is not None, "qv is given")
    _refuse(attention_chunk != 0, f"attention_chunk is {attention_chunk}")
    left, right = window_size
    return attention(
        q, k, v,
        window=(left, 0 if causal else right),
        softcap=softcap,
        sm_scale=softmax_scale,
        num_splits=max(num_splits, 1),
        q_descale=_of_heads(q_descale),
        k_descale=_of_heads(k_descale),
        v_descale=_of_heads(v_descale),
        return_lse=return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """FlashAttention-3's flash_attn_varlen_func: sequences end to end, q [total_q, hq, d], k and v [total_k, hkv, ..].

    cu_seqlens   int32 [b + 1]: where each sequence begins and the last one ends. They are copied to the host, which
                 waits for the stream: each sequence is a call of its own, so this suits few long sequences. The
                 kernels do not take packed sequences

    The other arguments are those of flash_attn_func; with return_attn_probs the LSE is [hq, total_q]. seqused_q and
    seqused_k raise NotImplementedError.
    """
    _refuse(seqused_q is not None, "seqused_q is given")
    _refuse(seqused_k is not None, "seqused_k is given")
    begin_q, begin_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    if len(begin_q) != len(begin_k):
        raise ValueError(
            f"flash_attn_varlen_func: cu_seqlens_k has {len(begin_k)} entries; must have those of cu_seqlens_q "
            f"({len(begin_q)})"
        )
    out: list[Tensor] = []
    lse: list[Tensor] = []
    for i in range(len(begin_q) - 1):
        rows, keys = slice(begin_q[i], begin_q[i + 1]), slice(begin_k[i], begin_k[i + 1])
        of_q, of_k, of_v = (None if x is None else x[i : i + 1] for x in (q_descale, k_descale, v_descale))
        part = flash_attn_func(
            q[None, rows], k[None, keys], v[None, keys], softmax_scale, causal, qv, of_q, of_k, of_v, window_size,
            attention_chunk, softcap, num_splits, return_attn_probs=True,
        )  # fmt: skip
        out.append(part[0][0])
        lse.append(part[1][0])
    joined = torch.cat(out)
    return (joined, torch.cat(lse, dim=1)) if return_attn_probs else joined


def _refuse(condition: bool, what: str) -> None:
    if condition:
        raise NotImplementedError(f"octavo.torch: {what}; must be left out: Octavo has no such kernel")


def _of_heads(descale: Tensor | None) -> Tensor | None:
    """[b, hkv] as the library takes it: contiguous, also where it was expanded from one value."""
    return None if descale is None else descale.contiguous()
