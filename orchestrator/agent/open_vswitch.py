# SPDX-License-Identifier: Apache-2.0
"""What Open vSwitch and ovn-controller of the host say of themselves, by JSON-RPC over their unix sockets (RFC 7047,
ovs-appctl(8)): no program is started for it, as each observation asks."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading
from orchestrator.core.hosts.bridges import Bridge

_LIMIT_S: Final = 2.0
_MAX_BYTES: Final = 1 << 20
_MAX_SHOWN: Final = 10
_MAX_PORTS: Final = 500
_MAX_WHY: Final = 80
_UNANSWERED: Final = "it answers no ping any more"
_QUESTIONS: Final[list[dict[str, Any]]] = [
    {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["external_ids"]},
    {"op": "select", "table": "Interface", "where": [["type", "==", "geneve"]],
     "columns": ["options", "error", "bfd_status"]},
    {"op": "select", "table": "Interface", "where": [["type", "==", ""]], "columns": ["external_ids"]},
]  # fmt: skip


def with_ovn(
    paths: Paths, bridge: Bridge, unanswered: Iterable[str] = (), slow: Iterable[str] = (), *, refused: bool = False
) -> Bridge:
    """``bridge``: the one that OVN plugs cards into. ``unanswered``: hosts' addresses that answer no more; ``slow``,
    ``refused``: as the bridge has them."""
    try:
        chassis, tunnels, cards = ask_open_vswitch(paths, _QUESTIONS)
        known = of_map(chassis[0]["external_ids"])
        silent = sorted({*filter(None, map(_silence, tunnels)), *(f"{each}: {_UNANSWERED}" for each in unanswered)})
        ids = [of_map(card["external_ids"]) for card in cards]
    except (OSError, ValueError, LookupError, TypeError):
        return replace(bridge, problem="Open vSwitch does not answer")
    names = (known.get("system-id"), known.get("hostname"))
    waiting = sorted(each["iface-id"] for each in ids if "iface-id" in each and each.get("ovn-installed") != "true")
    return replace(
        bridge, chassis=tuple(dict.fromkeys(filter(None, names))), problem=_problem(paths),
        silent_tunnels=tuple(silent[:_MAX_SHOWN]), waiting_ports=tuple(waiting[:_MAX_PORTS]),
        slow_tunnels=tuple(slow), pings_refused=refused,
    )  # fmt: skip


def _silence(tunnel: dict[str, Any]) -> str | None:
    """The other host's address, and why nothing reaches it: what Open vSwitch could not make, or where BFD, which OVN
    has between gateways and others (ovn-architecture(7)), hears nothing. None: neither is so."""
    error, state = tunnel["error"], of_map(tunnel["bfd_status"]).get("state")
    why = error[:_MAX_WHY] if isinstance(error, str) else "BFD hears nothing" if state == "down" else ""
    return f"{of_map(tunnel['options']).get('remote_ip', '?')}: {why}" if why else None


def of_map(value: Any) -> dict[str, str]:
    """A map, as OVSDB writes one (RFC 7047, 5.1). :raises ValueError, LookupError, TypeError: it is none"""
    return {str(key): str(each) for key, each in value[1]}


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
