# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core.errors import NotFound
from orchestrator.services.retention import Retention
from tests.fakes.control_plane import T4_HOST, control_plane, create_vm

DAY_S = 86_400.0


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_what_ended_long_ago_is_forgotten_unless_something_still_speaks_of_it(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = None if backend == "sqlite" else str(request.getfixturevalue("postgres").database())
    plane = control_plane(tmp_path, url=url)
    added = plane.add_host(T4_HOST)
    vms, clock = plane.services.vms, plane.world.clock
    made = vms.create(create_vm("kept")).operation
    gone = vms.create(create_vm("gone")).operation
    plane.engine.drain()
    deleted = vms.delete("default", "gone").operation
    plane.engine.drain()
    newest = vms.stop("default", "kept").operation
    plane.engine.drain()
    last = vms.start("default", "kept").operation
    plane.engine.drain()
    retention = Retention(store=plane.store, clock=clock, time=plane.time, days=30)
    assert retention.round() == 0
    clock.sleep(31 * DAY_S)
    waits = vms.create(create_vm("waits")).operation
    assert retention.round() == 5
    for operation in (added, made, gone, deleted, newest):
        with pytest.raises(NotFound):
            plane.services.operations.get(str(operation))
    assert plane.services.operations.get(str(last)).state == "done"
    assert plane.services.operations.get(str(waits)).state == "queued"
    assert retention.round() == 0
    plane.store.close()


def test_the_turn_never_goes_back_though_the_operation_that_ended_last_is_old(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    plane.services.vms.create(create_vm("gone"))
    plane.engine.drain()
    plane.services.vms.delete("default", "gone")
    plane.engine.drain()
    with plane.store.read() as tx:
        before = tx.operations.turn()
    plane.world.clock.sleep(31 * DAY_S)
    Retention(store=plane.store, clock=plane.world.clock, time=plane.time, days=30).round()
    with plane.store.read() as tx:
        assert tx.operations.turn() == before == 3
    plane.store.close()
