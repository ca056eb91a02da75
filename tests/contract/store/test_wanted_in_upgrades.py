# SPDX-License-Identifier: Apache-2.0
"""An upgrade of drivers that an older version had begun starts the VMs that it had stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import create_engine, text

from orchestrator.store.schema import alembic_config
from tests.fakes.control_plane import T4_HOST, control_plane, create_vm
from tests.fakes.drivers import with_bundle
from tests.operations.test_driver_upgrades import NEW, OLD, go_on, phases, wanted


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_vms_that_an_older_version_had_stopped_run_again_and_others_stay_stopped(
    tmp_path: Path, request: pytest.FixtureRequest, backend: str
) -> None:
    url = f"sqlite:///{tmp_path / 'vgpuctl.sqlite'}"
    if backend == "postgresql":
        url = str(request.getfixturevalue("postgres").database())
    plane = control_plane(tmp_path, url=url)
    plane.add_host(T4_HOST)
    for version in (OLD, NEW):
        with_bundle(plane, version)
    for name in ("ran", "stopped"):
        plane.services.vms.create(create_vm(name, start=name == "ran"))
    plane.engine.drain()
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,)))
    plane.engine.drain()
    plane.store.close()
    engine = create_engine(url)
    with engine.begin() as connection:
        command.downgrade(alembic_config(connection), "0044")
        connection.execute(text("UPDATE vms SET wanted = 'stopped'"))
        command.upgrade(alembic_config(connection), "head")
    engine.dispose()
    later = control_plane(tmp_path, hosts=plane.hosts, url=url)
    later.ids.count = plane.ids.count
    assert phases(go_on(later)) == {T4_HOST: "done"}
    states = {vm.spec.name: vm.state for vm in later.services.vms.list(None)}
    assert states == {"ran": "running", "stopped": "stopped"}
    later.store.close()
