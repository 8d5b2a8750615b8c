# SPDX-License-Identifier: Apache-2.0
"""The error of 8-bit attention on the Q, K and V of a file, as one page."""

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path

from .reader import read, read_metadata, refuse

_FAILED, _BAD_INPUT = 1, 2  # exit codes, as those of the command octavo


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m octavo.report", description=__doc__)
    parser.add_argument("input", metavar="IN", type=Path, help="safetensors file with q, k and v, or PREFIXq, ..")
    parser.add_argument("-o", "--output", metavar="OUT.html", type=Path, required=True, help="the page")
    parser.add_argument("--png", metavar="OUT.png", type=Path, help="the drawings as a picture, too")
    parser.add_argument("--recipe", default="default", help="the one to look at closely (default: default)")
    parser.add_argument("--bench", metavar="FILE", type=Path, help="JSON of `octavo bench gpu --json`, for speeds")
    parser.add_argument("--prefix", help="only this group (default: all)")
    parser.add_argument("--engine", default="auto", help="auto, sm90 or emulate (default: auto)")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU engines; 0: one per core")
    call = parser.add_argument_group("what is computed (defaults: the file's metadata)")
    mask = call.add_mutually_exclusive_group()
    mask.add_argument("--causal", action="store_true", help="each query sees keys up to its own position")
    mask.add_argument("--window", metavar="L,R", help="keys back and ahead that a query sees; 'all' is no limit")
    mask.add_argument("--no-mask", action="store_true", help="every query sees every key")
    call.add_argument("--softcap", metavar="X", help="scores become X tanh(score / X)")
    call.add_argument("--scale", metavar="X", help="softmax scale (default 1 / sqrt(head dim))")
    call.add_argument("--key-lengths", metavar="A,B,..", help="valid keys of each batch entry")
    call.add_argument("--layout", help="bshd or bhsd")
    return parser


def settings(args: argparse.Namespace) -> dict[str, str]:
    """The file's metadata with what the flags say in their place."""
    found = read_metadata(args.input)
    if args.causal or args.no_mask or args.window is not None:
        found.pop("octavo.window", None)
        found["causal"] = "true" if args.causal else "false"
    flags = {
        "octavo.window": args.window,
        "octavo.softcap": args.softcap,
        "octavo.sm_scale": args.scale,
        "octavo.key_lengths": args.key_lengths,
        "octavo.layout": args.layout,
    }
    return found | {key: value for key, value in flags.items() if value is not None}


def check_outputs(args: argparse.Namespace) -> None:
    """Before minutes of work: each output can be written and replaces nothing that is needed."""
    outputs = {"--output": args.output} | ({"--png": args.png} if args.png else {})
    for name, path in outputs.items():
        if not path.parent.is_dir():
            refuse(name, str(path), "in a folder that exists")
        if path.is_dir():
            refuse(name, str(path), "a file, not a folder")
        for other in (args.input, args.bench):
            if other is not None and path.exists() and other.exists() and path.samefile(other):
                refuse(name, str(path), f"another file than {str(other)!r}, which it would replace")
    if args.png is not None and args.png.absolute() == args.output.absolute():
        refuse("--png", str(args.png), "another file than the page")


def say(text: str) -> None:
    print(f"octavo.report: {text}", file=sys.stderr, flush=True)


def run(args: argparse.Namespace) -> None:
    from .bench import read_speeds
    from .page import page
    from .picture import write_picture
    from .statistics import Where, collect

    start = time.monotonic()
    check_outputs(args)
    file = read(args.input, settings(args), args.prefix)
    speeds = None if args.bench is None else read_speeds(args.bench, file)
    where = Where(args.engine, args.threads)
    stats = collect(file, args.recipe, where, () if speeds is None else list(speeds.tflops), say)
    say("drawing")
    replace(args.output, page(file, stats, speeds).encode())
    if args.png is not None:
        write_picture(args.png, file, stats, speeds)
    written = args.output if args.png is None else f"{args.output} and {args.png}"
    say(f"{written} written in {time.monotonic() - start:.0f} s")


def replace(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(data)
    os.replace(partial, path)


def main() -> int:
    args = arguments().parse_args()
    if importlib.util.find_spec("matplotlib") is None:
        say('matplotlib is missing; must be installed: pip install ".[report]"')
        return _FAILED
    try:
        run(args)
    except (ValueError, NotImplementedError, OSError) as error:
        print(error if str(error).startswith("octavo.report") else f"octavo.report: {error}", file=sys.stderr)
        return _BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
