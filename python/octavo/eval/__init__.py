# SPDX-License-Identifier: Apache-2.0
"""What FP8 attention costs a language model: its perplexity on a text, against the same model in 16 bits.

    octavo-eval --context 2048 bf16 default "default softmax=direct"

A variant names how attention is computed (octavo.eval.variants); every variant reads the same tokens, and differences
are taken token by token. Needs the extra: pip install "octavo[eval]".
"""
