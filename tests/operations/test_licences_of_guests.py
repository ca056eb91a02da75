# SPDX-License-Identifier: Apache-2.0
"""What a host's driver says of guests' licences is shown, and told of where a guest ought to have one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.diff import Severity
from orchestrator.core.errors import Unknown
from orchestrator.core.gpu.licence import GuestLicence, LicenceState, VgpuLicence, licence_of
from orchestrator.core.hosts.snapshot_rules import checked
from orchestrator.reconcile.wanted import LICENCE_WITHIN_S
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        made.services.vms.create(create_vm())
        made.engine.drain()
        yield made


def _told(plane: ControlPlane, *states: LicenceState, until: int | None = None) -> None:
    """The driver says so from now on, and was asked."""
    vm = plane.services.vms.get("default", "train").id
    plane.machine(T4_HOST).licences = tuple(VgpuLicence(vm=vm, state=one, until=until) for one in states)
    plane.observer.observe(T4_HOST)


def _given_a_token(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        (vm,) = tx.vms.list()
        tx.vms.update(replace(vm, addresses=("192.0.2.7",)))
    secrets = {"licence_token": "eyJ.TOKEN"}
    plane.services.guests.provision("default", "train", ("guest_licence",), secrets=secrets)
    plane.engine.drain()
    with plane.store.begin() as tx:
        record = tx.guests.get(vm.id)
        results = tuple(replace(one, at=plane.world.clock.now()) for one in record.results)
        tx.guests.put(replace(record, results=results))


def _findings(plane: ControlPlane) -> list[Severity]:
    plane.reconciler.round()
    with plane.store.read() as tx:
        found = [one.finding for one in tx.findings.list(host=T4_HOST)]
    return [one.severity for one in found if one.code == "vm.unlicensed"]


def _licence(plane: ControlPlane) -> GuestLicence:
    return plane.services.guests.licence("default", "train")


def test_a_licence_is_told_with_its_end_while_the_vm_runs(plane: ControlPlane) -> None:
    assert _licence(plane) == GuestLicence(state="unknown")
    _told(plane, "licensed", until=1_900_000_000)
    assert _licence(plane) == GuestLicence(state="licensed", until=1_900_000_000)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    assert _licence(plane) == GuestLicence(state="unknown")


@pytest.mark.parametrize("lie", [
    VgpuLicence(vm="a" * 256, state="unlicensed"), VgpuLicence(vm="a", state="licensed", until=-1),
    VgpuLicence(vm="a", state="licensed", until=2**62),
])  # fmt: skip
def test_a_host_that_tells_of_a_licence_that_cannot_be_is_believed_nothing(
    plane: ControlPlane, lie: VgpuLicence
) -> None:
    with plane.store.read() as tx:
        snapshot = tx.hosts.snapshot(T4_HOST)
    assert snapshot is not None
    told = replace(snapshot, gpus=tuple(replace(gpu, licences=(lie,)) for gpu in snapshot.gpus))
    with pytest.raises(Unknown) as caught:
        checked(told)
    assert caught.value.code == "agent.answer_invalid"


def test_a_vm_is_as_well_licensed_as_the_worst_of_its_vgpus() -> None:
    told = (
        VgpuLicence(vm="a", state="licensed", until=30),
        VgpuLicence(vm="a", state="licensed", until=20),
        VgpuLicence(vm="b", state="unlicensed"),
        VgpuLicence(vm="b", state="licensed", until=20),
        VgpuLicence(vm="c", state="unknown"),
        VgpuLicence(vm="c", state="licensed"),
    )
    assert [licence_of(vm, told) for vm in "abcd"] == [
        GuestLicence(state="licensed", until=20),
        GuestLicence(state="unlicensed"),
        GuestLicence(state="unknown"),
        GuestLicence(state="unknown"),
    ]


def test_a_guest_that_was_given_a_token_and_stays_unlicensed_is_a_finding(plane: ControlPlane) -> None:
    _told(plane, "unlicensed")
    assert _findings(plane) == []
    _given_a_token(plane)
    _told(plane, "unlicensed")
    assert _findings(plane) == ["info"]
    plane.world.clock.sleep(LICENCE_WITHIN_S + 1)
    assert _findings(plane) == ["warning"]
    _told(plane, "licensed")
    assert _findings(plane) == []


@pytest.mark.fault("F63")
def test_when_the_licence_server_is_gone_the_guest_goes_on_its_state_is_told_and_nothing_is_done_about_it(
    plane: ControlPlane,
) -> None:
    _given_a_token(plane)
    _told(plane, "licensed")
    machine, before = plane.machine(T4_HOST), plane.services.vms.get("default", "train")
    running = dict(machine.domains)
    _told(plane, "unlicensed")
    plane.world.clock.sleep(LICENCE_WITHIN_S + 1)
    assert _findings(plane) == ["warning"]
    assert plane.findings.repair(host=T4_HOST) == ()
    plane.engine.drain()
    assert _licence(plane) == GuestLicence(state="unlicensed")
    assert machine.domains == running
    assert plane.services.vms.get("default", "train").state == before.state == "running"
    started = plane.services.vms.create(create_vm("next"))
    plane.engine.drain()
    assert plane.services.operations.get(str(started.operation)).state == "done", "new ones start as well"


def test_what_nobody_says_is_no_finding(plane: ControlPlane) -> None:
    _given_a_token(plane)
    plane.world.clock.sleep(LICENCE_WITHIN_S + 1)
    _told(plane, "unknown")
    assert _findings(plane) == []
    _told(plane)
    assert _findings(plane) == []
