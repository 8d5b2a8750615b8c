# SPDX-License-Identifier: Apache-2.0
"""octavo-eval: perplexities of a language model under FP8 attention."""

import argparse
import bz2
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import octavo

from . import variants
from .runners import Runner, load
from .statistics import Row, compare

DEFAULT = ["bf16", "per_tensor", "per_head", "block", "block+rotate", "block+smooth", "fp8", "default", "strict_causal"]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo-eval",
        description=__doc__ + "\n\n" + (variants.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("variants", nargs="*", default=DEFAULT, help="each in quotes; the first is the base")
    parser.add_argument("--model", required=True, help="GGUF file, or directory of a transformers model")
    parser.add_argument("--text", type=Path, required=True, help="UTF-8 text, or that in .bz2")
    parser.add_argument("--context", type=int, default=2048, help="tokens of a window (default: 2048)")
    parser.add_argument("--tokens", type=int, default=100_000, help="of the text that are read (default: 100000)")
    parser.add_argument("--engine", default="auto", help="auto, sm90 or emulate (default: auto)")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], help="of the layers beside attention (default: bfloat16 with torch, float32 without)")
    parser.add_argument("--work", type=Path, help="folder of finished windows: a call that was stopped goes on there (not for another build of octavo)")
    parser.add_argument("--json", type=Path, help="write the table here, too")
    return parser


class Store:
    """Losses of one variant and context, kept in a file as windows are done."""

    def __init__(self, folder: Path | None, key: dict[str, Any], shape: tuple[int, int]) -> None:
        self.losses: NDArray[np.float32] = np.full(shape, np.nan, np.float32)
        self._path = None
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        self._key = json.dumps(key | {"octavo": octavo.__version__}, sort_keys=True)
        readable = "".join(c if c.isalnum() or c in "+=._" else "-" for c in f"{key['variant']} {shape[1] + 1}")
        self._path = folder / f"{readable}-{hashlib.sha256(self._key.encode()).hexdigest()[:12]}.npz"
        if self._path.exists():
            with np.load(self._path) as kept:
                if str(kept["key"]) == self._key and kept["losses"].shape == shape:
                    self.losses = kept["losses"]

    def missing(self) -> list[int]:
        return [int(i) for i in np.flatnonzero(np.isnan(self.losses).any(axis=1))]

    def put(self, window: int, losses: NDArray[Any]) -> None:
        if not np.isfinite(losses).all():
            raise ValueError(f"octavo-eval: window {window} has losses that are not finite")
        self.losses[window] = losses
        if self._path is not None:
            partial = self._path.with_suffix(".part")
            with partial.open("wb") as file:
                np.savez(file, key=self._key, losses=self.losses)
            os.replace(partial, self._path)


def evaluate(runner: Runner, names: list[str], ids: list[int], context: int, engine: str, work: Path | None) -> list[Row]:
    """A row for each variant; the first is the base of the differences."""
    parsed = [variants.parse(name) for name in names]
    digest = hashlib.sha256(np.array(ids, np.int64).tobytes()).hexdigest()
    windows = [ids[i : i + context] for i in range(0, len(ids) - context + 1, context)]
    rows, base = [], None
    for variant in parsed:
        key = {"variant": variant.name, "engine": engine, "model": runner.identity, "text": digest}
        store = Store(work, key, (len(windows), context - 1))
        for i in tqdm(store.missing(), desc=variant.name, unit="window", leave=False, file=sys.stderr):
            store.put(i, runner.losses(windows[i], variant))
        base = store.losses if base is None else base
        rows.append(compare(variant.name, store.losses, base))
        tqdm.write(line(rows[-1]), file=sys.stdout)
    return rows


def line(row: Row) -> str:
    return (
        f"{row.variant:34} {row.perplexity:9.4f}  {row.delta_percent:+8.4f} %"
        f"  [{row.low_percent:+.4f}, {row.high_percent:+.4f}]"
    )


def read_text(path: Path) -> str:
    data = path.read_bytes()
    return (bz2.decompress(data) if path.suffix == ".bz2" else data).decode("utf-8")


def main() -> None:
    args = arguments().parse_args()
    try:
        runner = load(args.model, args.engine, args.dtype)
        ids = runner.encode(read_text(args.text))[: args.tokens]
        if args.context > min(len(ids), runner.context) or args.context < 2:
            raise ValueError(
                f"octavo-eval: --context is {args.context}; must be from 2 to {min(len(ids), runner.context)}, "
                "what the text and the model have"
            )
        print(f"{runner.description}; {len(ids)} tokens of {args.text.name}, windows of {args.context}")
        print(f"{'variant':34} {'perplexity':>9}  {'difference':>10}  95 % of it")
        rows = evaluate(runner, args.variants, ids, args.context, args.engine, args.work)
    except (ValueError, NotImplementedError, OSError) as error:
        sys.exit(str(error))
    if args.json:
        facts = {"octavo": octavo.__version__, "model": runner.description, "text": args.text.name, "context": args.context}
        args.json.write_text(json.dumps(facts | {"engine": args.engine, "rows": [r.as_dict() for r in rows]}, indent=1))


if __name__ == "__main__":
    main()
