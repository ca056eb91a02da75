# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.core.drivers.host_drivers import DueReboot, HostDrivers
from orchestrator.core.errors import Retryable, Unknown, VgpuctlError
from orchestrator.core.hosts.host import Host
from orchestrator.core.ovn import HostInOvn
from orchestrator.operations.context import Limits
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from tests.fakes.control_plane import T4_HOST, ControlPlane, add_host, control_plane


@dataclass
class EndedPlay:
    """A configurator whose plays fail; in the last try the server begins to leave, as its plays are ended then."""

    error: VgpuctlError
    tries: int
    left: int = 0

    def install_agent(
        self, host: Host, gpus: tuple[str, ...], progress: Callable[[str], None], *, take_over: bool = False
    ) -> None:
        self.left += 1
        raise self.error

    def remove_agent(self, host: Host, progress: Callable[[str], None]) -> None:
        raise self.error

    def provision(self, host: Host, wanted: HostDrivers, progress: Callable[[str], None]) -> DueReboot | None:
        raise self.error

    def leaving(self) -> bool:
        return self.left >= self.tries

    def join_ovn(self, host: Host, wanted: HostInOvn, progress: Callable[[str], None]) -> None:
        raise self.error


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    yield made
    made.store.close()


@pytest.mark.fault("F17")
@pytest.mark.parametrize("tries", [1, Limits().tries])
@pytest.mark.parametrize("error", [Unknown("host.provisioning_unknown", "ended"), Retryable("host.away", "parked")])
def test_a_play_that_leaving_has_ended_is_parked_and_done_by_the_next_server(
    plane: ControlPlane, error: VgpuctlError, tries: int
) -> None:
    operation = plane.services.hosts.add(add_host(T4_HOST)).operation
    assert operation is not None
    configurator = EndedPlay(error, tries)
    runner = Runner(replace(plane.world, configurator=configurator), plane.journal, DEFINITIONS)
    runner.run(operation, configurator.leaving)
    parked = plane.services.operations.get(operation)
    assert parked.state == "running"
    assert "running" in {step.state for step in parked.steps}
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "done"
    assert plane.services.hosts.get(T4_HOST).host.state == "ready"
