# SPDX-License-Identifier: Apache-2.0
"""A terminal on a host's serial line."""

from __future__ import annotations

import os
import select
import socket
import sys
import termios
import tty
from pathlib import Path

from lab.errors import LabError

_LEAVE = b"\x1d"


def attach(door: Path, log: Path) -> None:
    """Joins standard input and output to the console until Ctrl-] or end of input."""
    if not sys.stdin.isatty():
        raise LabError("the console needs a terminal", f"what it said so far: {log}")
    print("console: leave with Ctrl-]", file=sys.stderr)
    before = termios.tcgetattr(sys.stdin)
    with socket.socket(socket.AF_UNIX) as line:
        try:
            # the path may be longer than a socket address can hold
            os.chdir(door.parent)
            line.connect(door.name)
        except OSError as error:
            raise LabError(f"{door}: {error.strerror}", "is the host running?") from error
        tty.setraw(sys.stdin)
        try:
            _copy(line)
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _copy(line: socket.socket) -> None:
    while True:
        ready, _, _ = select.select([sys.stdin, line], [], [])
        if line in ready:
            said = line.recv(4096)
            if not said:
                return
            os.write(sys.stdout.fileno(), said)
        if sys.stdin in ready:
            typed = os.read(sys.stdin.fileno(), 1024)
            if not typed or _LEAVE in typed:
                return
            line.sendall(typed)
