# SPDX-License-Identifier: Apache-2.0
"""A host whose agent is older than the server: observed, stopped, upgraded by itself, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import NoCapacity
from orchestrator.core.protocol import PROTOCOL_VERSION
from orchestrator.reconcile import repairs
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        made.services.vms.create(create_vm())
        made.engine.drain()
        for host in (T4_HOST, L40S_HOST):
            made.machine(host).protocol = 3
        yield made
        made.reconciler.close()


def codes(plane: ControlPlane, host: str) -> list[str]:
    return [one.finding.code for one in plane.findings.observe(host)]


def upgrades_of(plane: ControlPlane, host: str) -> list[str]:
    found = plane.services.operations.list(unfinished=False, limit=99, subject=host)
    return [one.state for one in found if one.kind == "upgrade_agent"]


def test_an_older_agent_is_one_finding_and_is_replaced_without_being_asked(plane: ControlPlane) -> None:
    before = plane.machine(T4_HOST).state()
    assert codes(plane, T4_HOST) == ["agent.too_old"]
    assert upgrades_of(plane, T4_HOST) == ["queued"]
    plane.engine.drain()
    assert plane.machine(T4_HOST).state() == {**before, "protocol": PROTOCOL_VERSION}, "VMs are not disturbed"
    assert codes(plane, T4_HOST) == []
    assert upgrades_of(plane, T4_HOST) == ["done"]


def test_nothing_new_is_placed_there_and_what_runs_can_be_stopped(plane: ControlPlane) -> None:
    for host in (T4_HOST, L40S_HOST):
        plane.findings.observe(host)
    with pytest.raises(NoCapacity) as refused:
        plane.services.vms.create(create_vm("second"))
    assert "its agent is too old and is upgraded by itself" in {one.message for one in refused.value.reasons}
    info = plane.services.hosts.get(T4_HOST)
    assert info.snapshot is not None
    assert info.snapshot.agent_too_old
    stopped = plane.services.vms.stop("default", "train")
    plane.engine.waiting[:] = [str(stopped.operation)]
    plane.engine.drain()
    assert plane.services.operations.get(str(stopped.operation)).state == "done"


def test_a_vm_that_is_started_there_fails_and_leaves_nothing(plane: ControlPlane) -> None:
    stopped = plane.services.vms.stop("default", "train")
    plane.engine.drain()
    before = plane.machine(T4_HOST).state()
    started = plane.services.vms.start("default", "train")
    plane.engine.drain()
    operation = plane.services.operations.get(str(started.operation))
    assert (operation.state, operation.error and operation.error["code"]) == ("undone", "agent.too_old")
    assert plane.machine(T4_HOST).state() == before
    assert stopped.operation is not None


def test_only_a_few_hosts_are_upgraded_at_a_time(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairs, "MAX_AT_A_TIME", 1)
    codes(plane, T4_HOST)
    codes(plane, L40S_HOST)
    assert (upgrades_of(plane, T4_HOST), upgrades_of(plane, L40S_HOST)) == (["queued"], [])
    plane.engine.drain()
    codes(plane, L40S_HOST)
    assert upgrades_of(plane, L40S_HOST) == ["queued"]


def test_what_is_under_way_on_a_host_ends_before_its_agent_is_replaced(plane: ControlPlane) -> None:
    stopping = plane.services.vms.stop("default", "train")
    codes(plane, T4_HOST)
    assert upgrades_of(plane, T4_HOST) == []
    plane.engine.drain()
    codes(plane, T4_HOST)
    assert upgrades_of(plane, T4_HOST) == ["queued"]
    assert plane.services.operations.get(str(stopping.operation)).state == "done"
