# SPDX-License-Identifier: Apache-2.0
"""Models whose attention can be exchanged: token losses of a window under a variant."""

import math
from pathlib import Path
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import octavo

from . import gguf_model
from .gguf_model import Floats
from .variants import Imitation, Octavo, SixteenBit, Variant


class Runner(Protocol):
    description: str
    identity: str  # of the weights and of how they are run: no two models share it
    context: int  # tokens that the model was made for

    def encode(self, text: str) -> list[int]: ...
    def losses(self, ids: list[int], variant: Variant) -> NDArray[Any]:
        """Negative log-likelihoods of tokens 1.., in nats."""


class Numpy:
    """A GGUF model in numpy: linear layers in FP32, attention's operands rounded to BF16."""

    def __init__(self, model: gguf_model.Model, engine: str, identity: str) -> None:
        self._model, self._engine, self.identity = model, engine, f"numpy {identity}"
        self.description = f"{model.name}, {model.types}, numpy in FP32, attention's operands in BF16"
        self.context = model.context

    def encode(self, text: str) -> list[int]:
        return list(self._model.tokenizer().encode(text).ids)

    def losses(self, ids: list[int], variant: Variant) -> NDArray[Any]:
        if isinstance(variant, Imitation):
            raise ValueError(f"octavo-eval: variant {variant.name!r} needs torch, which is not installed")

        def attention(layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
            q, k, v = (x.astype(ml_dtypes.bfloat16) for x in (q, k, v))
            if isinstance(variant, SixteenBit):
                exact = gguf_model.exact_attention(layer, *(x.astype(np.float32) for x in (q, k, v)))
                return exact.astype(ml_dtypes.bfloat16).astype(np.float32)
            out = octavo.attention(q[None], k[None], v[None], causal=True, engine=self._engine, **variant.arguments)
            rounded: Floats = out[0].astype(np.float32)
            return rounded

        return gguf_model.token_losses(self._model.forward(ids, attention), ids)


class Torch:
    """A causal language model of transformers; attention's operands are BF16 whatever the other layers are."""

    def __init__(
        self,
        model: Any,
        encode: Any,
        description: str,
        engine: str,
        identity: str,
        dtype: str,
        prefix: list[int] | None = None,
    ) -> None:
        """prefix: tokens that the model wants before every window; they are not counted."""
        import torch
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface

        self._torch, self._engine, self._encode, self._prefix = torch, engine, encode, prefix or []
        self._variant: Variant = SixteenBit()
        AttentionInterface.register("octavo-eval", self._attend)
        AttentionMaskInterface.register("octavo-eval", lambda *args, **kwargs: None)  # every window is causal
        model.set_attn_implementation("octavo-eval")
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model = model.to(self._device, getattr(torch, dtype)).eval()
        self.description = f"{description}, transformers in {dtype} on {self._device}, attention's operands in BF16"
        self.identity = f"transformers {self._device} {dtype} {identity}"
        self.context = model.config.get_text_config().max_position_embeddings - len(self._prefix)

    def encode(self, text: str) -> list[int]:
        return list(self._encode(text))

    def losses(self, ids: list[int], variant: Variant) -> NDArray[Any]:
        torch, self._variant = self._torch, variant
        tokens = torch.tensor(self._prefix + ids, device=self._device)
        with torch.no_grad():
            logits = self._model(tokens[None], use_cache=False).logits[0, len(self._prefix) : -1].float()
            found = torch.nn.functional.cross_entropy(logits, tokens[len(self._prefix) + 1 :], reduction="none")
        losses: NDArray[Any] = found.cpu().numpy()
        return losses

    def _attend(
        self, module: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float | None = None, **others: Any
    ) -> tuple[Any, None]:
        """q [b, hq, s, d], k, v [b, hkv, s, d] to [b, s, hq, d]."""
        for name in ("softcap", "s_aux", "position_bias"):
            if others.get(name) is not None:
                raise NotImplementedError(f"octavo-eval: the model's attention has {name}, which is not evaluated yet")
        if (others.get("sliding_window") or q.shape[2]) < q.shape[2]:
            raise NotImplementedError(
                f"octavo-eval: the model sees {others['sliding_window']} keys back; --context must be at most that"
            )
        scale = scaling if scaling is not None else 1 / math.sqrt(q.shape[3])
        variant, torch, dtype = self._variant, self._torch, q.dtype
        q, k, v = (x.to(torch.bfloat16) for x in (q, k, v))
        if isinstance(variant, SixteenBit):
            out = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=scale, enable_gqa=True
            )
        elif isinstance(variant, Imitation):
            from .imitation import attention

            out = attention(variant, q, k, v, scale)
        else:
            out = self._octavo(variant, q, k, v, scale)
        return out.transpose(1, 2).contiguous().to(dtype), None

    def _octavo(self, variant: Octavo, q: Any, k: Any, v: Any, scale: float) -> Any:
        on_host = self._engine in ("emulate", "reference")
        if on_host:
            q, k, v = (x.cpu() for x in (q, k, v))
        out = self._torch.empty_like(q)
        octavo.attention(
            q, k, v, out=out, causal=True, sm_scale=scale, layout="bhsd", engine=self._engine, **variant.arguments
        )
        return out.to(self._device)


def load(model: str, engine: str, dtype: str | None = None) -> Runner:
    """`model`: a GGUF file, or a directory that transformers reads. With torch a GGUF model runs in transformers, too.

    `dtype` of the layers beside attention: "bfloat16" (the default with torch) or "float32" (the one without)."""
    path = Path(model)
    if not path.exists():
        raise ValueError(f"octavo-eval: --model is {model}; must be a GGUF file or a directory of a transformers model")
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError:
        if path.is_dir():
            raise ValueError(f"octavo-eval: --model is the directory {model}; needs torch and transformers") from None
        if dtype == "bfloat16":
            raise ValueError("octavo-eval: --dtype is bfloat16; must be float32 without torch") from None
        return Numpy(gguf_model.Model(path), engine, _identity(path))
    dtype = dtype or "bfloat16"
    if path.is_dir():
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(path)

        def encode(text: str) -> Any:
            return tokenizer(text, add_special_tokens=False).input_ids

        return Torch(loaded, encode, path.name, engine, _identity(path), dtype, list(tokenizer("").input_ids)[:1])
    source = gguf_model.Model(path)
    description = f"{source.name}, {source.types}"
    encode_gguf = source.tokenizer().encode
    return Torch(_llama(source), lambda text: encode_gguf(text).ids, description, engine, _identity(path), dtype)


def _identity(path: Path) -> str:
    """Of the files of a model: where they are, their sizes and when they were written."""
    files = sorted(x for x in path.iterdir() if x.is_file()) if path.is_dir() else [path]
    return f"{path.resolve()} {[(x.name, x.stat().st_size, x.stat().st_mtime_ns) for x in files]}"


def _llama(source: gguf_model.Model) -> Any:
    """The same weights in transformers' LlamaForCausalLM."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    w = source.w
    config = LlamaConfig(
        vocab_size=w["token_embd.weight"].shape[0],
        hidden_size=w["token_embd.weight"].shape[1],
        intermediate_size=w["blk.0.ffn_up.weight"].shape[0],
        num_hidden_layers=source.layers,
        num_attention_heads=source.heads,
        num_key_value_heads=source.kv_heads,
        head_dim=source.head_dim,
        max_position_embeddings=source.context,
        rms_norm_eps=source.eps,
        tie_word_embeddings=True,
        **{"rope_theta": source.theta},  # of transformers 4; 5 takes it, too, and keeps it elsewhere
    )
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    for i in range(source.layers):
        names |= {f"blk.{i}.{old}.weight": f"model.layers.{i}.{new}.weight" for old, new in parts.items()}
    state = {names[name]: torch.from_numpy(np.array(x)) for name, x in w.items()}
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise ValueError(f"octavo-eval: the model lacks {missing} and has {unexpected} beside a Llama's weights")
    model.tie_weights()
    return model
