# SPDX-License-Identifier: Apache-2.0
"""What an agent makes of Open vSwitch's rows; tests/contract/test_ovn_of_hosts.py asks a real one."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.agent.open_vswitch import with_ovn
from orchestrator.agent.paths import Paths
from orchestrator.core.hosts.bridges import Bridge

EMPTY: list[Any] = ["map", []]


def _tunnel(address: str, error: object = ("set", ()), **bfd: str) -> dict[str, Any]:
    options = ["map", [["key", "flow"], ["remote_ip", address]]]
    return {"options": options, "error": error, "bfd_status": ["map", list(map(list, bfd.items()))]}


@contextmanager
def _answering(root: Path, *rows: list[dict[str, Any]]) -> Iterator[None]:
    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(json.dumps({"id": 0, "result": [{"rows": each} for each in rows]}).encode())

    (root / "run/openvswitch").mkdir(parents=True)
    with socketserver.ThreadingUnixStreamServer(str(root / "run/openvswitch/db.sock"), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield
        server.shutdown()


def test_tunnels_that_carry_nothing_and_cards_that_wait_are_told(tmp_path: Path) -> None:
    tunnels = [
        _tunnel("192.0.2.2"), _tunnel("192.0.2.3", state="up"), _tunnel("192.0.2.4", state="down"),
        _tunnel("192.0.2.5", "could not add network device: no such device"), _tunnel("192.0.2.6", state="admin_down"),
    ]  # fmt: skip
    cards = [
        {"external_ids": EMPTY}, {"external_ids": ["map", [["iface-id", "b"]]]},
        {"external_ids": ["map", [["iface-id", "a"], ["ovn-installed", "true"]]]},
    ]  # fmt: skip
    with _answering(tmp_path, [{"external_ids": ["map", [["system-id", "gpu-1"]]]}], tunnels, cards):
        told = with_ovn(Paths(root=tmp_path, storage=tmp_path), Bridge(name="br-int", kind="openvswitch"))
    assert told.chassis == ("gpu-1",)
    assert told.silent_tunnels == (
        "192.0.2.4: BFD hears nothing", "192.0.2.5: could not add network device: no such device",
    )  # fmt: skip
    assert told.waiting_ports == ("b",)
