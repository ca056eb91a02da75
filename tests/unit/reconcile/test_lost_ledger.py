# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pysqlite3 import dbapi2 as sqlite

from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
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
    assert machine.ledger.lost, "nobody has asked for it"
    assert len(plane.findings.repair(host=host)) == 1
    plane.engine.drain()
    assert machine.state() == before
    assert codes(plane, host) == []


def test_what_was_under_way_when_the_ledger_was_lost_waits_for_it_and_then_ends(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    before = machine.state()

    def lose(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "MakeVgpu"):
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


PROFILES = {T4_HOST: "GRID T4-2Q", L40S_HOST: "NVIDIA L40S-12Q", A100_HOST: "GRID A100D-1-20C", "whole": "gpu:1"}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
@pytest.mark.parametrize("by_older_agent", [False, True])
def test_a_host_is_as_it_was_found_once_its_vms_and_it_go_after_its_ledger_was_lost(
    tmp_path: Path, profile: str, by_older_agent: bool
) -> None:
    """``by_older_agent``: the ledger was written again, and the VM's device was left nobody's."""
    name = next((host for host, its_own in PROFILES.items() if its_own == profile), "")
    name = L40S_HOST if name == "whole" else name
    with plane_with(tmp_path) as plane:
        machine = plane.machine(name)
        found = (machine.state(), [gpu.mig for gpu in machine.gpus])
        plane.add_host(name)
        plane.services.vms.create(create_vm(profile=profile))
        plane.engine.drain()
        running = machine.state()
        lose_ledger(machine)
        if by_older_agent:
            machine.ledger.lost, machine.managed = False, tuple(gpu.address for gpu in machine.gpus)
            machine.foreign.clear()
            for gpu in machine.gpus:
                gpu.mig_before = False if gpu.mig else None
            assert codes(plane, name) == ["vm.device_differs"]
        else:
            assert codes(plane, name) == ["host.ledger_lost"]
        assert len(plane.findings.repair(host=name)) == 1
        plane.engine.drain()
        assert (machine.state(), codes(plane, name)) == (running, [])
        plane.services.vms.stop("default", "train")
        plane.engine.drain()
        plane.services.vms.delete("default", "train")
        plane.engine.drain()
        assert codes(plane, name) == []
        plane.services.hosts.remove(name)
        plane.engine.drain()
        assert (machine.state(), [gpu.mig for gpu in machine.gpus]) == found
        plane.reconciler.close()


def test_a_mode_that_nobody_knows_any_more_is_told(tmp_path: Path) -> None:
    with plane_with(tmp_path, A100_HOST) as plane:
        plane.services.vms.create(create_vm(profile=PROFILES[A100_HOST]))
        plane.engine.drain()
        with sqlite.connect(tmp_path / "vgpuctl.sqlite") as books:  # as of a host that an older version enrolled
            books.execute("UPDATE gpus SET mig_found = NULL")
        lose_ledger(plane.machine(A100_HOST))
        plane.findings.observe(A100_HOST)
        (operation,) = plane.findings.repair(host=A100_HOST)
        plane.engine.drain()
        (warning,) = plane.services.operations.get(operation).warnings
        gpu = plane.machine(A100_HOST).gpus[0].address
        assert warning == f"GPU {gpu} stays in MIG mode when it is given back, for what it was before is not known"
        plane.reconciler.close()


def test_settling_raises_the_epoch_since_the_attempts_that_the_ledger_knew_are_lost(plane: ControlPlane) -> None:
    before = plane.services.hosts.get(T4_HOST).host.epoch
    lose_ledger(plane.machine(T4_HOST))
    plane.findings.observe(T4_HOST)
    plane.findings.repair(host=None)
    plane.engine.drain()
    assert plane.services.hosts.get(T4_HOST).host.epoch == before + 1
