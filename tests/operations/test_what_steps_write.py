# SPDX-License-Identifier: Apache-2.0
"""Steps write the columns that are theirs, in few commits, and what was written elsewhere meanwhile stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event

from orchestrator.core.host import Host
from orchestrator.core.lease import WantedEnd
from orchestrator.core.snapshot import DomainSnapshot
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


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    made.add_host(T4_HOST)
    yield made
    made.store.close()


def run(plane: ControlPlane, operation: str | None) -> str:
    assert operation is not None
    Runner(plane.world, plane.journal, DEFINITIONS).run(operation)
    return plane.services.operations.get(operation).state


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """``commits`` and ``reads`` as transactions, ``statements`` with those that begin one."""
    counts: Counter[str] = Counter()

    def executed(*_: object) -> None:
        counts["statements"] += 1

    def committed(connection: Connection) -> None:
        counts["reads" if connection.get_execution_options()["how"] == "reading" else "commits"] += 1

    event.listen(Engine, "before_cursor_execute", executed)
    event.listen(Engine, "commit", committed)
    try:
        yield counts
    finally:
        event.remove(Engine, "before_cursor_execute", executed)
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


def test_a_create_and_a_delete_take_few_commits_reads_and_statements(plane: ControlPlane) -> None:
    vms = plane.services.vms
    run(plane, vms.create(create_vm("first")).operation)  # has read what is read once
    started = vms.create(create_vm())
    with counted() as create:
        assert run(plane, started.operation) == "done"
    started = vms.delete("default", "train")
    with counted() as delete:
        assert run(plane, started.operation) == "done"
    assert create["commits"] <= 10
    assert create["reads"] <= 7
    assert create["statements"] <= 52
    assert delete["commits"] <= 8
    assert delete["reads"] <= 3
    assert delete["statements"] <= 46
