# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

built_with_cuda: bool

class Call:
    def __init__(
        self,
        *,
        layout: str,
        window: tuple[int, int],
        softcap: float,
        sm_scale: float | None,
        key_lengths: Sequence[int],
        recipe: str | None,
        softmax: str,
        accumulator: str,
        promote_every: int,
        num_splits: int,
        engine: str,
        threads: int,
    ) -> None: ...
    def set(self, name: str, array: object, dtype: str | None = None) -> tuple[tuple[int, ...], str]: ...
    def run(self) -> str: ...
    def why_unsupported(self) -> str: ...

def quantize(
    q: object,
    k: object,
    v: object,
    *,
    dtypes: Sequence[str | None],
    layout: str,
    recipe: str,
    key_lengths: Sequence[int],
    engine: str,
    threads: int,
) -> tuple[Any, ...]: ...
def describe(function: str, name: str, array: object, dtype: str | None) -> tuple[tuple[int, ...], str]: ...
def copy_codes(array: object, dtype: str) -> Any: ...
def version() -> str: ...
def engine_names() -> list[str]: ...
def recipe_names() -> list[str]: ...
def simd_targets() -> list[str]: ...
def device_sentence() -> str: ...
