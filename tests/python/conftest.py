# SPDX-License-Identifier: Apache-2.0
import pytest
from cli_support import octavo


@pytest.fixture
def qkv(tmp_path):
    path = tmp_path / "qkv.safetensors"
    octavo("gen", "-o", path, "b2 sq130 sk257 hq4 hkv2 d64 causal seed=3")
    return path
