# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane
from tests.landed.landed import landed_control_plane

RUNNING = {"kept", "typed", "byhand"}


@pytest.fixture(params=["sqlite", "postgresql"])
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlPlane]:
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres").database())
    else:
        url = f"sqlite:///{tmp_path / 'vgpuctl.sqlite'}"
    made = landed_control_plane(tmp_path, url)
    yield made
    made.store.close()


def states(plane: ControlPlane) -> dict[str, str]:
    return {vm.spec.name: vm.state for vm in plane.services.vms.list(None)}


def go_on(plane: ControlPlane) -> None:
    """What the engine does at its start: everything that is not over, oldest first."""
    for operation in reversed(plane.services.operations.list(unfinished=True, limit=99)):
        plane.engine.submit(operation.id)
    plane.engine.drain()


def test_vms_keep_the_devices_and_the_slots_they_had(plane: ControlPlane) -> None:
    vms = {vm.spec.name: vm for vm in plane.services.vms.list(None)}
    with plane.store.read() as tx:
        claims = {claim.vm: claim for claim in tx.claims.list()}
    (mdev,), (function,) = vms["kept"].devices, vms["typed"].devices
    assert mdev.name in plane.machine(T4_HOST).mdevs
    assert (function.name, function.name) == (function.parent, claims[vms["typed"].id].devices[0].function)
    assert function.name in plane.machine(L40S_HOST).vf_types
    held = [(one.gpu, slot) for claim in claims.values() for one in claim.devices for slot in one.slots]
    assert len(held) == len(set(held)) == len(claims) == 9


def test_what_was_asked_for_last_is_still_wanted(plane: ControlPlane) -> None:
    wanted = {vm.spec.name: vm.wanted for vm in plane.services.vms.list(None)}
    assert wanted == {
        **dict.fromkeys(("begun", "leased", "urgent", "broken", *RUNNING), "running"),
        **dict.fromkeys(("batch", "resting"), "stopped"),
        "going": "absent",
    }


def test_operations_that_were_under_way_end_and_no_vm_that_ran_is_touched(plane: ControlPlane) -> None:
    ids = {vm.id for vm in plane.services.vms.list(None) if vm.spec.name in RUNNING}
    machines = plane.hosts.machines.values()
    before = {uuid: domain for machine in machines for uuid, domain in machine.domains.items() if uuid in ids}
    go_on(plane)
    assert states(plane) == {
        **dict.fromkeys(("begun", "leased", "urgent", *RUNNING), "running"),
        **dict.fromkeys(("batch", "resting"), "stopped"),
        "broken": "stuck",
    }
    assert {uuid: domain for machine in machines for uuid, domain in machine.domains.items() if uuid in ids} == before
    assert plane.services.operations.list(unfinished=True, limit=99) == ()
    assert [finding.finding.code for finding in plane.findings.observe(T4_HOST)] == []


def test_what_was_stuck_shows_what_is_left_and_is_taken_back_when_it_is_tried_again(plane: ControlPlane) -> None:
    stuck = next(one for one in plane.services.operations.list(unfinished=False, limit=99) if one.state == "stuck")
    assert any(thing.startswith("vGPU ") for thing in stuck.remainder)
    plane.services.operations.retry(stuck.id)
    plane.engine.drain()
    assert plane.services.operations.get(stuck.id).state == "undone"
    assert "broken" not in states(plane)


def test_everything_can_be_deleted_afterwards(plane: ControlPlane) -> None:
    go_on(plane)
    for name in states(plane):
        plane.services.vms.delete("default", name)
        plane.engine.drain()
    assert states(plane) == {}
    with plane.store.read() as tx:
        assert tx.claims.list() == ()
    for name in (T4_HOST, L40S_HOST):
        machine = plane.machine(name)
        assert (machine.mdevs, machine.vf_types, machine.domains, machine.volumes) == ({}, {}, {}, {})
