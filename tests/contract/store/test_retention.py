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
    retention = Retention(store=plane.store, clock=clock, days=30)
    assert retention.round() == 0
    clock.sleep(31 * DAY_S)
    waits = vms.create(create_vm("waits")).operation
    assert retention.round() == 3
    for operation in (added, gone, deleted):
        with pytest.raises(NotFound):
            plane.services.operations.get(str(operation))
    assert plane.services.operations.get(str(made)).state == "done"
    assert plane.services.operations.get(str(waits)).state == "queued"
    assert retention.round() == 0
    plane.store.close()
