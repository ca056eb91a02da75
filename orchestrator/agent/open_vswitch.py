# SPDX-License-Identifier: Apache-2.0
"""What Open vSwitch and ovn-controller of the host say of themselves, by JSON-RPC over their unix sockets (RFC 7047,
ovs-appctl(8)): no program is started for it, as each observation asks."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading
from orchestrator.core.hosts.bridges import Bridge

_LIMIT_S: Final = 2.0
_MAX_BYTES: Final = 1 << 20


def with_ovn(paths: Paths, bridge: Bridge) -> Bridge:
    """``bridge``: the one that OVN plugs cards into."""
    try:
        ids = ask_open_vswitch(paths, [{"op": "select", "table": "Open_vSwitch", "where": [],
                                        "columns": ["external_ids"]}])[0][0]["external_ids"]  # fmt: skip
        known = {str(key): str(value) for key, value in ids[1]}
    except (OSError, ValueError, LookupError, TypeError):
        return replace(bridge, problem="Open vSwitch does not answer")
    names = (known.get("system-id"), known.get("hostname"))
    return replace(bridge, chassis=tuple(dict.fromkeys(filter(None, names))), problem=_problem(paths))


def ask_open_vswitch(paths: Paths, operations: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows of each select. :raises OSError, ValueError, LookupError, TypeError: it does not answer so"""
    answers = _ask(paths.root / "run/openvswitch/db.sock", "transact", ["Open_vSwitch", *operations])
    return [answer["rows"] for answer in answers]


def _problem(paths: Paths) -> str | None:
    directory = paths.root / "run/ovn"
    process = (reading.text(directory / "ovn-controller.pid") or "").strip()
    try:
        status = _ask(directory / f"ovn-controller.{process}.ctl", "connection-status", [])
    except (OSError, ValueError, LookupError, TypeError):
        return "ovn-controller does not answer"
    return None if str(status).strip() == "connected" else "ovn-controller has no connection to OVN's southbound"


def _ask(place: Path, method: str, parameters: list[Any]) -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_LIMIT_S)
        connection.connect(str(place))
        connection.sendall(json.dumps({"id": 0, "method": method, "params": parameters}).encode())
        answer = b""
        while len(answer) <= _MAX_BYTES:
            piece = connection.recv(1 << 16)
            if not piece:
                break
            answer += piece
            if piece.rstrip().endswith(b"}"):
                try:
                    return json.loads(answer)["result"]
                except json.JSONDecodeError:  # a brace within it
                    continue
    raise ValueError("no answer")
