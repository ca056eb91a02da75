# SPDX-License-Identifier: Apache-2.0
"""``fmpm``: lists, activates and deactivates partitions; arguments, answers and exit status as NVIDIA's."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Sequence
from typing import Any

from .partitions import BADPARAM, CONNECTION_NOT_VALID, SUCCESS

USAGE = """-l : List partitions
-a <Partition ID> : Activate partition
-d <Partition ID> : Deactivate partition
--hostname : hostname or IP address (TCP socket) of Fabric Manager.
--unix-domain-socket : UNIX domain socket path for Fabric Manager connection
--get-nvlink-failed-devices : Query all NVLink failed devices
--list-unsupported-partitions : Query all unsupported fabric partitions
--set-activated-list <Partition IDs> : Set a list of currently activated fabric partitions.
-v : Show version
"""
VERSION = "1.0.1"
MAX_PARTITIONS = 64
PORT = 6666
_FAILURES = {
    "list": "Failed to get partition list.",
    "unsupported": "Failed to list unsupported partitions.",
    "failed": "Failed to NVLink failed devices.",
    "activate": "Failed to activate partition.",
    "deactivate": "Failed to deactivate partition.",
    "set": "Failed to set activated partitions.",
}
_CALLS = {
    "-l": "list",
    "-a": "activate",
    "-d": "deactivate",
    "--set-activated-list": "set",
    "--get-nvlink-failed-devices": "failed",
    "--list-unsupported-partitions": "unsupported",
}
_WITH_VALUE = {"-a", "-d", "--set-activated-list", "--hostname", "--unix-domain-socket"}


def _ask(options: dict[str, str], request: dict[str, Any]) -> dict[str, Any]:
    path = options.get("--unix-domain-socket")
    with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as link:
        link.settimeout(5.0)
        link.connect(path or (options.get("--hostname", "127.0.0.1"), PORT))
        link.sendall(json.dumps(request).encode() + b"\n")
        with link.makefile("rb") as answers:
            answer: dict[str, Any] = json.loads(answers.readline())
    return answer


def _run(options: dict[str, str]) -> int:
    option = next((name for name in reversed(options) if name in _CALLS), "")
    if not option:
        return SUCCESS
    ids = [int(word) for word in options[option].split(",")] if options[option] else []
    if any(number < 0 or number >= MAX_PARTITIONS for number in ids):
        print("Invalid Partition ID.")
        return BADPARAM
    try:
        answer = _ask(options, {"call": _CALLS[option], "ids": ids})
    except OSError:
        print("Failed to connect to Fabric Manager instance.")
        return CONNECTION_NOT_VALID
    if answer["code"] != SUCCESS:
        print(f"{_FAILURES[_CALLS[option]]} fmReturn: {answer['code']}")
    elif "body" in answer:
        print(json.dumps(answer["body"], indent=3, sort_keys=True))
    return int(answer["code"])


def main(arguments: Sequence[str]) -> int:
    """The exit status: fmReturn_t, of which a shell sees the low byte (-7 is 249)."""
    options: dict[str, str] = {}
    rest = list(arguments)
    if not rest or rest == ["-h"]:
        print(USAGE, end="")
        return 0
    if rest == ["-v"]:
        print(VERSION)
        return 0
    while rest:
        name = rest.pop(0)
        if name not in _CALLS and name not in _WITH_VALUE:
            print("Invalid argument.\n", file=sys.stderr)
            return BADPARAM & 0xFF
        if name in _WITH_VALUE and not rest:
            print(f"Error: {name} option requires a value.", file=sys.stderr)
            return 1
        options[name] = rest.pop(0) if name in _WITH_VALUE else ""
    return _run(options) & 0xFF
