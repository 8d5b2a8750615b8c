# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face language model with attn_implementation="octavo": prefill in FP8, decoding by torch.

The model has random weights, so that nothing is downloaded. Needs PyTorch and transformers.
"""

from typing import Any

import torch
import transformers

import octavo.transformers


def main() -> None:
    report = octavo.transformers.register()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=2,
    )  # fmt: skip
    torch.manual_seed(0)
    from_config: Any = transformers.AutoModelForCausalLM.from_config  # which has no types
    model = from_config(config, attn_implementation="octavo", dtype=torch.bfloat16).to(device).eval()
    prompt = torch.randint(0, config.vocab_size, (1, 300), device=device)
    tokens = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)
    print(f"{tokens.shape[1] - prompt.shape[1]} tokens generated on {device}")
    print(report)


if __name__ == "__main__":
    main()
