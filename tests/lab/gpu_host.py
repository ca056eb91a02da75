# SPDX-License-Identifier: Apache-2.0
"""Reads and writes of a lab host's kernel files, each answered with its text or its errno."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence

Shell = Callable[[str], str]

_PROBE = """
import errno, glob, json, os, sys
def one(verb, path, value):
    try:
        path = glob.glob(path)[0] if "*" in path else path
        flags = os.O_RDONLY if verb == "read" else os.O_WRONLY
        fd = os.open(path, flags)
        try:
            if verb == "read":
                return os.read(fd, 65536).decode().strip()
            os.write(fd, value.encode())
            return "ok"
        finally:
            os.close(fd)
    except OSError as error:
        return errno.errorcode[error.errno]
print(json.dumps([one(*step) for step in json.loads(sys.argv[1])]))
"""

Step = tuple[str, str, str]


def write(path: str, value: str) -> Step:
    return ("write", path, value)


def read(path: str) -> Step:
    return ("read", path, "")


def answers(shell: Shell, steps: Sequence[Step]) -> list[str]:
    """What each step gave, in order: ``ok``, the text read, or the name of the errno."""
    command = f"python3 -c {shlex.quote(_PROBE)} {shlex.quote(json.dumps(list(steps)))}"
    return [str(answer) for answer in json.loads(shell(command).strip().rsplit("\n", maxsplit=1)[-1])]


def gpu_address(shell: Shell, model: str) -> str:
    """PCI address of the last GPU of a model, as sysfs writes it."""
    rows = shell("nvidia-smi --query-gpu=pci.bus_id,name --format=csv,noheader").strip().splitlines()
    found = [bus for bus, _, name in (row.partition(", ") for row in rows) if name == model]
    return found[-1][4:].lower()


def switches(shell: Shell, address: str) -> str:
    """Directory with the failure switches of a GPU."""
    return shell(f"grep -l '^bdf {address}$' /sys/kernel/vgpu_lab/gpus/*/state").strip().removesuffix("/state")


def refusals(shell: Shell) -> int:
    """How often somebody who had a GPU open kept its driver from locking it, since the module was loaded."""
    return sum(map(int, shell("sed -n 's/^refused //p' /sys/kernel/vgpu_lab/gpus/*/state").split()))
