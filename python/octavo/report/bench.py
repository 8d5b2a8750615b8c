# SPDX-License-Identifier: Apache-2.0
"""Speeds of recipes from a file of `octavo bench gpu --json`."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .reader import QkvFile, refuse
from .statistics import Variant

_VARIANT = re.compile(r"^(recipe|softmax)=(.+)$")


@dataclass(frozen=True)
class Speeds:
    """TFLOPS from 16-bit operands to the output, of variants that one problem was timed with."""

    problem: str
    device: str
    tflops: dict[Variant, float]


def read_speeds(path: Path, file: QkvFile) -> Speeds:
    """The problem with the most variants; of these the one nearest to the file's calls, then the longest."""
    try:
        found = json.loads(path.read_text())
        by_problem = _by_problem(found)
    except (ValueError, KeyError, TypeError, AttributeError):
        by_problem = {}
    if not by_problem:
        refuse("--bench", str(path), "the JSON of `octavo bench gpu --json`, with results")
    d = file.groups[0].q.shape[3]

    def rank(problem: str) -> tuple[int, int, bool, int]:
        same_mask = ("causal" in problem.split()) == file.call.causal
        distance = abs(_number(problem, "d", 128) - d)
        return len(by_problem[problem]), -distance, same_mask, _number(problem, "s", 0)

    best = max(by_problem, key=rank)
    return Speeds(best, str(found.get("device", found.get("board", "the GPU"))), by_problem[best])


def _by_problem(found: dict[str, Any]) -> dict[str, dict[Variant, float]]:
    """Lists of results may be several, as in bench/results."""
    speeds: dict[str, dict[Variant, float]] = {}
    for key, results in found.items():
        if not key.startswith("results"):
            continue
        for result in results:
            problem, variant = _split(result["problem"])
            speeds.setdefault(problem, {})[variant] = float(result["end_to_end_tflops"])
    return speeds


def _split(line: str) -> tuple[str, Variant]:
    tokens = line.split()
    chosen = {match[1]: match[2] for match in map(_VARIANT.match, tokens) if match}
    rest = " ".join(token for token in tokens if not _VARIANT.match(token))
    return rest, (chosen.get("recipe", "default"), chosen.get("softmax", "exact"))


def _number(problem: str, name: str, default: int) -> int:
    match = re.search(rf"(?:^| ){name}(\d+)(?: |$)", problem)
    return int(match.group(1)) if match else default
