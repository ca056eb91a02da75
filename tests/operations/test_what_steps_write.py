# SPDX-License-Identifier: Apache-2.0
"""Steps write the columns that are theirs, in few commits, and what was written elsewhere meanwhile stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pysqlite3 import dbapi2 as sqlite
from sqlalchemy import Connection, Engine, event

from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts

DAY_S = 86400


class Extending(FakeHosts):
    """While the guest is waited for, its user extends the VM's lease."""

    plane: ControlPlane

    def observe_domain(self, host: Host, vm: str) -> DomainSnapshot | None:
        self.plane.services.vms.extend("default", "train", WantedEnd(after_s=30 * DAY_S))
        return super().observe_domain(host, vm)


def run(plane: ControlPlane, operation: str | None) -> str:
    assert operation is not None
    Runner(plane.world, plane.journal, DEFINITIONS).run(operation)
    return plane.services.operations.get(operation).state


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """``commits`` and ``reads`` as transactions, ``statements`` with those that begin one: of the databases that are
    opened inside."""
    counts: Counter[str] = Counter()

    def executed(statement: str) -> None:
        counts["statements"] += statement != "COMMIT"

    def connected(connection: sqlite.Connection, _record: object) -> None:
        connection.set_trace_callback(executed)

    def committed(connection: Connection) -> None:
        counts["reads" if connection.get_execution_options()["how"] == "reading" else "commits"] += 1

    event.listen(Engine, "connect", connected)
    event.listen(Engine, "commit", committed)
    try:
        yield counts
    finally:
        event.remove(Engine, "connect", connected)
        event.remove(Engine, "commit", committed)


@pytest.mark.parametrize("kind", ["create", "start"])
def test_a_lease_that_is_extended_while_the_vm_starts_stays_extended(tmp_path: Path, kind: str) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    vms = plane.services.vms
    operation = vms.create(replace(create_vm(start=kind == "create"), end=WantedEnd(after_s=DAY_S))).operation
    if kind == "start":
        assert run(plane, operation) == "done"
        operation = vms.start("default", "train").operation
    extending = Extending(plane.hosts.machines)
    extending.plane = plane
    Runner(replace(plane.world, link=extending), plane.journal, DEFINITIONS).run(str(operation))
    vm = vms.get("default", "train")
    assert vm.state == "running"
    assert vm.lease_end is not None
    assert vm.lease_end > plane.world.clock.now() + 29 * DAY_S
    plane.store.close()


def test_a_create_and_a_delete_take_few_commits_reads_and_statements(tmp_path: Path) -> None:
    with counting() as counts:
        plane = control_plane(tmp_path)
        plane.add_host(T4_HOST)
        vms = plane.services.vms
        run(plane, vms.create(create_vm("first")).operation)  # has read what is read once
        started = vms.create(create_vm())
        counts.clear()
        assert run(plane, started.operation) == "done"
        create = counts.copy()
        started = vms.delete("default", "train")
        counts.clear()
        assert run(plane, started.operation) == "done"
        plane.store.close()
    assert create["commits"] <= 11
    assert create["reads"] <= 7
    assert create["statements"] <= 67, "each commit tells its events in one statement"
    assert counts["commits"] <= 9
    assert counts["reads"] <= 5, "one of them: moves that got stuck, whose places go too; one as cleanings were written"
    assert counts["statements"] <= 81, "SQLite tells a DELETE once more for each table that follows by cascade"
