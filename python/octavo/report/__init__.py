# SPDX-License-Identifier: Apache-2.0
"""The error report of a Q/K/V file: one self-contained page.

    python -m octavo.report qkv.safetensors -o report.html

Needs matplotlib: pip install ".[report]". What the page shows: docs/report.md.
"""
