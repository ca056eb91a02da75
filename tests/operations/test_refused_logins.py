# SPDX-License-Identifier: Apache-2.0
"""A provisioning key that the host does not accept: nothing was done there, and nothing is left to decide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator.core.errors import Fatal
from orchestrator.core.hosts.host import Host
from tests.fakes.control_plane import T4_HOST, ControlPlane, add_host, control_plane
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine


class Closed(FakeHosts):
    """Hosts that accept no key; ``opens``: they accept it when the agent is installed, and not any more afterwards."""

    opens = False

    def install_agent(
        self, host: Host, gpus: tuple[str, ...], progress: Callable[[str], None], *, take_over: bool = False
    ) -> None:
        if not self.opens:
            raise _refused()
        super().install_agent(host, gpus, progress, take_over=take_over)

    def remove_agent(self, host: Host, progress: Callable[[str], None]) -> None:
        raise _refused()


def _refused() -> Fatal:
    return Fatal("host.auth_failed", "the host does not accept the provisioning key", hint="check the key")


def _added(plane: ControlPlane) -> str:
    started = plane.services.hosts.add(add_host(T4_HOST))
    plane.engine.drain()
    assert started.operation is not None
    return plane.services.operations.get(started.operation).state


def test_a_host_that_lets_nobody_in_is_as_if_it_was_never_added(tmp_path: Path) -> None:
    plane = control_plane(tmp_path, hosts=Closed({f"{T4_HOST}.test": FakeMachine(machine_id="m1", gpus=[])}))
    assert _added(plane) == "undone"
    assert plane.services.hosts.list() == ()
    assert plane.keys.keys == {}
    assert _added(plane) == "undone"


def test_a_host_whose_agent_had_answered_stays_stuck_until_somebody_decides(tmp_path: Path) -> None:
    hosts = Closed({f"{T4_HOST}.test": FakeMachine(machine_id="m1", gpus=[])})
    hosts.opens = True
    plane = control_plane(tmp_path, hosts=hosts)
    started = plane.services.hosts.add(add_host(T4_HOST, gpus="0000:ff:00.0"))
    plane.engine.drain()
    assert started.operation is not None
    assert plane.services.operations.get(started.operation).state == "stuck"
