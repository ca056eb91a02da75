# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_actions import lose_ledger


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        made.services.vms.create(create_vm())
        made.services.vms.create(create_vm("other", profile="NVIDIA L40S-12Q"))
        made.engine.drain()
        yield made
        made.reconciler.close()


def codes(plane: ControlPlane, host: str) -> list[str]:
    return [one.finding.code for one in plane.findings.observe(host)]


@pytest.mark.parametrize("host", [T4_HOST, L40S_HOST])
def test_a_lost_ledger_is_one_finding_and_asking_for_repairs_writes_it_again(plane: ControlPlane, host: str) -> None:
    machine = plane.machine(host)
    before = machine.state()
    lose_ledger(machine)
    assert codes(plane, host) == ["host.ledger_lost"]
    plane.engine.drain()
    assert machine.ledger_lost, "nobody has asked for it"
    assert len(plane.findings.repair(host=host)) == 1
    plane.engine.drain()
    assert machine.state() == before
    assert codes(plane, host) == []


def test_what_was_under_way_when_the_ledger_was_lost_waits_for_it_and_then_ends(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    before = machine.state()

    def lose(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "CreateMdev"):
            lose_ledger(machine)

    plane.hosts.strike = lose
    operation = str(plane.services.vms.create(create_vm("third")).operation)
    plane.engine.drain()
    for _ in range(2):
        assert plane.services.operations.get(operation).state == "stuck"
        assert codes(plane, T4_HOST) == ["host.ledger_lost"]
        plane.engine.drain()
    plane.findings.repair(host=T4_HOST)
    plane.engine.drain()
    plane.findings.observe(T4_HOST)
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "undone"
    assert machine.state() == before
    assert codes(plane, T4_HOST) == []


def test_settling_raises_the_epoch_since_the_attempts_that_the_ledger_knew_are_lost(plane: ControlPlane) -> None:
    before = plane.services.hosts.get(T4_HOST).host.epoch
    lose_ledger(plane.machine(T4_HOST))
    plane.findings.observe(T4_HOST)
    plane.findings.repair(host=None)
    plane.engine.drain()
    assert plane.services.hosts.get(T4_HOST).host.epoch == before + 1
