#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the output of a build with -DOCTAVO_PTXAS_INFO=ON: tools/check_kernels.py BUILD_LOG

Exits 1 where a kernel spills, has a stack frame (local memory), or ptxas warns that it serialised
wgmma or ignored setmaxnreg (C75xx), or where the log shows no kernel at all. Prints a line a kernel.
"""
import re
import sys

FUNCTION = re.compile(r"Compiling entry function '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
WARNING = re.compile(r"C75\d\d")


def main(path):
    kernels, faults, current = {}, [], None
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            if match := FUNCTION.search(line):
                current = match.group(1)
            elif (match := FRAME.search(line)) and current:
                if match.groups() != ("0", "0", "0"):
                    faults.append(f"{current}: {match.group(0)}")
            elif (match := REGISTERS.search(line)) and current:
                kernels[current] = int(match.group(1))
            if WARNING.search(line):
                faults.append(line.strip())
    for name, registers in sorted(kernels.items()):
        print(f"{registers:4d} registers  {name}")
    if not kernels:
        faults.append("the log shows no kernel")
    for fault in faults:
        print("FAULT", fault)
    print(f"{len(kernels)} kernels, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
