# SPDX-License-Identifier: Apache-2.0
"""One controller does not reach a host that another one reaches: the host is worked on as ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from tests.contract.engine.test_several_controllers import add_image, ended
from tests.fakes.relay import Relay
from tests.fakes.several import Server, join_one, simulated_fleet, until, wish
from tests.postgres.cluster import Cluster

VMS = 3


@dataclass
class Way:
    """From one controller to the hosts."""

    path: Path
    target: Path
    open: bool = True

    def __post_init__(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.path))
        listener.listen()
        self.relay = Relay(listener, self._connect)

    def shut(self) -> None:
        self.open = False
        self.relay.cut()

    def _connect(self) -> socket.socket:
        if not self.open:
            raise ConnectionRefusedError
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.target))
        return connection


@contextmanager
def site(tmp_path: Path, database_url: str) -> Iterator[tuple[Server, Server, Way]]:
    """``a`` reaches the host by a way of its own, ``b`` directly."""
    with simulated_fleet(tmp_path, 1) as hosts:
        way = Way(tmp_path / "way.sock", hosts)
        servers = Server(tmp_path / "a", way.path), Server(tmp_path / "b", hosts)
        try:
            for server in servers:
                server.configure(database_url)
            for server in servers:
                join_one(server, servers[0])
            for server in servers:
                server.ready()
            yield (*servers, way)
        finally:
            for server in servers:
                server.kill()
            way.relay.close()


def state_of(client: Client) -> str:
    return str(client.hosts()[0]["state"])


def findings(client: Client) -> set[str]:
    return {str(one["code"]) for one in client.findings(None)}


@pytest.mark.fault("F22")
def test_a_host_that_one_of_two_controllers_does_not_reach_is_worked_on_by_the_other(
    tmp_path: Path, postgres: Cluster
) -> None:
    with site(tmp_path, postgres.database()) as (a, b, way):
        add_image(a, tmp_path, "guest")
        begun = [a.client().create_vm(wish(f"before-{number}", "guest"))["operation"] for number in range(2)]
        way.shut()  # while some of them may be under way
        states = set()
        for number in range(VMS):
            begun.append(a.client().create_vm(wish(f"vm-{number}", "guest"))["operation"])
            assert ended(b.client(), begun[-1]) == "done"
            states.add(state_of(a.client()))
        assert {ended(b.client(), one) for one in begun} == {"done"}
        assert states == {"ready"}
        until(lambda: "host.unreached" in findings(b.client()), "that it is told")
        b.stop()
        until(lambda: state_of(a.client()) == "unreachable", "that nobody who lives reaches it")
        way.open = True
        until(lambda: state_of(a.client()) == "ready", "the way back")
        until(lambda: not findings(a.client()) & {"host.unreached", "host.unreachable"}, "that nothing more is told")
        gone = a.client().delete_vm("vm-0", "default")["operation"]
        assert ended(a.client(), gone) == "done"
