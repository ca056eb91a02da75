# SPDX-License-Identifier: Apache-2.0
"""What an agent makes of Open vSwitch's rows; tests/contract/test_ovn_of_hosts.py asks a real one."""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.agent.open_vswitch import with_ovn
from orchestrator.agent.paths import Paths
from orchestrator.agent.readings.tunnels import MeasuredTunnels
from orchestrator.agent.timing import RealTiming
from orchestrator.core.hosts.bridges import Bridge
from tests.fakes.far_hosts import LATE_S

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


def test_a_few_other_hosts_are_measured_and_trouble_is_told_when_it_stays(tmp_path: Path) -> None:
    addresses = [f"192.0.2.{number}" for number in range(2, 9)]
    tunnels = [_tunnel(address) for address in (*addresses, "flow", "192.0.2.2")]
    with _answering(tmp_path, [{"external_ids": ["map", [["ovn-encap-ip", "192.0.2.1"]]]}], tunnels):
        words = ["unshare", "--map-root-user", "--net", sys.executable, "-m", "tests.fakes.far_hosts", str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["refused"] == [True, False]
    first, second, third = told["steps"]
    assert [(address, sent, lost) for address, sent, lost, _, _ in second["last"]] == [
        ("192.0.2.2", 3, 0), ("192.0.2.3", 3, 0), ("192.0.2.4", 3, 1), ("192.0.2.5", 3, 3), ("192.0.2.6", 3, 3),
    ]  # fmt: skip
    times = {address: (least, mean) for address, _, _, least, mean in second["last"]}
    assert times["192.0.2.5"] == (None, None)
    assert 0 < times["192.0.2.2"][0] <= times["192.0.2.2"][1]
    assert times["192.0.2.3"][0] >= LATE_S
    assert (first["silent"], first["slow"]) == ([], [])  # not by one measurement
    assert second["slow"][:2] == ["192.0.2.3: more than 20 ms there and back", "192.0.2.4: packets are lost"]
    assert third["silent"] == ["192.0.2.6"]  # and not .5, where ICMP may be filtered
    assert told["ipv6"] > 0


def test_without_open_vswitch_nothing_is_measured(tmp_path: Path) -> None:
    tunnels = MeasuredTunnels(Paths(root=tmp_path, storage=tmp_path), RealTiming())
    tunnels.measure()
    assert (tunnels.last(), tunnels.silent(), tunnels.slow()) == ((), (), ())


def test_what_was_measured_is_told_of_the_bridge(tmp_path: Path) -> None:
    slow = ("192.0.2.3: packets are lost",)
    with _answering(tmp_path, [{"external_ids": EMPTY}], [_tunnel("192.0.2.2")], []):
        bridge = Bridge(name="br-int", kind="openvswitch")
        told = with_ovn(Paths(root=tmp_path, storage=tmp_path), bridge, ("192.0.2.2",), slow, refused=True)
    assert told.pings_refused
    assert (told.silent_tunnels, told.slow_tunnels) == (("192.0.2.2: it answers no ping any more",), slow)
