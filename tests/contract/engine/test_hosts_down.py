# SPDX-License-Identifier: Apache-2.0
"""Four hundred requests while fifty hosts are down: what their operations cost is no cost of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from dbos import DBOS

from orchestrator.core.operation import FINISHED, Operation
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from tests.contract.engine.test_durable import durable
from tests.fakes.control_plane import ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, t4
from tests.fakes.several import until

DOWN, UP, REQUESTS = 50, 2, 416
"""So many VMs as have room: each host has some."""
WORKERS_PER_HOST = 2


def plane_of_many(directory: Path, url: str) -> ControlPlane:
    names = [f"h{number:02}" for number in range(DOWN + UP)]
    machines = {f"{name}.test": FakeMachine(machine_id=name, gpus=[t4()]) for name in names}
    plane = control_plane(directory, hosts=FakeHosts(machines), url=url)
    for name in names:
        plane.add_host(name)
    return plane


@pytest.mark.fault("F22", "F102")
def test_four_hundred_requests_with_fifty_hosts_down_hold_nobody_up(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'e.sqlite'}"
    plane = plane_of_many(tmp_path, url)
    asked = [plane.services.vms.create(create_vm(f"vm{number}")).operation for number in range(REQUESTS)]
    down = {f"h{number:02}" for number in range(DOWN)}
    for name in down:
        plane.machine(name).answers = False
    engine = durable(
        plane.store, url, Runner(plane.world, plane.journal, DEFINITIONS), WORKERS_PER_HOST, lambda *_: None
    )
    engine.recover()
    host_of = {vm.id: vm.host for vm in plane.services.vms.list(None)}
    operations = {one: plane.services.operations.get(str(one)) for one in asked}
    there = [one for one, operation in operations.items() if host_of[operation.subject] not in down]
    assert len(there) == REQUESTS * UP // (UP + DOWN)

    def now(one: str | None) -> Operation:
        return plane.services.operations.get(str(one))

    until(lambda: all(now(one).state in FINISHED for one in there))
    assert {now(one).state for one in there} == {"done"}
    until(lambda: all(now(one).host_wait is not None for one in asked if one not in there))
    until(lambda: not DBOS.list_workflows(status=["ENQUEUED", "PENDING"]), "the end of runs that wait for hosts")
    plane.reconciler.round()
    assert {info.host.state for info in plane.services.hosts.list() if info.host.name not in down} == {"ready"}
    assert {info.host.state for info in plane.services.hosts.list() if info.host.name in down} == {"unreachable"}
    engine.stop()
    assert not any(plane.machine(name).mdevs for name in down)
    plane.store.close()
