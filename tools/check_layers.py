#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the dependency rule of the sources; prints each breach as file:line: sentence, exits 1.

include <- core <- {reference, emulate, sm90} <- api; core <- workload; include <- io.
cli includes core, io and workload; bench these and emulate; tests what they test; python the
public headers. Engines do not include each other. Highway only under emulate/simd, inline assembly
only under sm90/ptx, torch nowhere in C++.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALLOWED = {  # folder -> first path components its quoted includes may have
    "include/octavo": {"octavo"},
    "src/core": {"octavo", "core"},
    "src/reference": {"octavo", "core", "reference"},
    "src/emulate": {"octavo", "core", "emulate"},
    "src/sm90": {"octavo", "core", "sm90"},
    "src/api": {"octavo", "core", "reference", "emulate", "sm90", "api"},
    "src/io": {"octavo", "io"},
    "src/workload": {"octavo", "core", "workload"},
    "cli": {"octavo", "core", "io", "workload", "cli"},
    "python/src": {"octavo"},
    "bench": {"octavo", "core", "emulate", "io", "workload", "bench"},
}
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
ASM = re.compile(r"\basm\b\s*(volatile)?\s*\(")


def breaches(folder, allowed, path):
    name = path.relative_to(ROOT).as_posix()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            kind, target = match.groups()
            first = target.split("/")[0]
            local = "/" not in target  # a neighbour in the same folder
            if kind == '"' and not local and first not in allowed:
                yield f"{name}:{number}: {folder} must not include {target}"
            if first == "hwy" and not name.startswith("src/emulate/simd/"):
                yield f"{name}:{number}: Highway belongs under src/emulate/simd"
            if first in ("torch", "ATen", "c10"):
                yield f"{name}:{number}: torch must not appear in C++"
        if ASM.search(line) and not name.startswith("src/sm90/ptx/"):
            yield f"{name}:{number}: inline assembly belongs under src/sm90/ptx"


def main():
    found = []
    for folder, allowed in ALLOWED.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                found += breaches(folder, allowed, path)
    print("\n".join(found) if found else "layers: every include follows the dependency rule")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
