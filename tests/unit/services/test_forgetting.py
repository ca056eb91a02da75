# SPDX-License-Identifier: Apache-2.0
"""A host that will never come back is given up: everything that hung on it is free again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, add_host, create_vm, plane_with


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A running VM on a host that burns down, another one that is being made there, and one elsewhere."""
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        made.services.vms.create(create_vm("gone"))
        made.services.vms.create(create_vm("elsewhere", profile="NVIDIA L40S-12Q"))
        made.engine.drain()
        made.services.vms.create(create_vm("half"))
        made.machine(T4_HOST).answers = False
        made.reconciler.round()
        yield made
        made.reconciler.close()


def states(plane: ControlPlane) -> dict[str, str]:
    return {vm.spec.name: vm.state for vm in plane.services.vms.list(None)}


def test_its_vms_are_lost_its_places_free_and_nobody_elses_vm_is_touched(plane: ControlPlane) -> None:
    info = plane.services.hosts.forget(T4_HOST, confirm=T4_HOST)
    assert (info.host.state, info.host.cordoned) == ("forgotten", True)
    assert states(plane) == {"gone": "lost", "half": "lost", "elsewhere": "running"}
    with plane.store.read() as tx:
        assert {claim.host for claim in tx.claims.list()} == {L40S_HOST}
    plane.engine.drain()
    assert states(plane)["half"] == "lost", "what was under way does not go on"
    assert [one.action for one in plane.services.tenancy.audit.list(limit=1, before=None)] == ["forget_host"]


def test_lost_vms_can_be_deleted_without_their_host_and_then_its_record_goes(plane: ControlPlane) -> None:
    plane.services.hosts.forget(T4_HOST, confirm=T4_HOST)
    with pytest.raises(Conflict) as refused:
        plane.services.hosts.remove(T4_HOST)
    assert refused.value.code == "host.has_vms"
    assert refused.value.hint == "delete them first: 'vgpuctl delete-vm gone half --tenant default'"
    with pytest.raises(Conflict):
        plane.services.vms.start("default", "gone")
    for name in ("gone", "half"):
        started = plane.services.vms.delete("default", name)
        plane.engine.drain()
        assert plane.services.operations.get(str(started.operation)).state == "done"
    assert states(plane) == {"elsewhere": "running"}
    assert plane.services.hosts.remove(T4_HOST).operation is None
    with pytest.raises(NotFound):
        plane.services.hosts.get(T4_HOST)


def test_a_host_that_returns_is_not_looked_at_and_not_added_until_its_record_is_gone(plane: ControlPlane) -> None:
    plane.services.hosts.forget(T4_HOST, confirm=T4_HOST)
    plane.machine(T4_HOST).answers = True
    before = plane.machine(T4_HOST).state()
    plane.reconciler.round()
    assert plane.services.hosts.get(T4_HOST).host.state == "forgotten"
    assert [one.finding.code for one in plane.findings.list(host=T4_HOST)] == ["host.forgotten"]
    plane.hosts.machines["again.test"] = plane.hosts.machines[f"{T4_HOST}.test"]
    started = plane.services.hosts.add(replace(add_host("again"), gpus="unused"))
    plane.engine.drain()
    operation = plane.services.operations.get(str(started.operation))
    assert operation.error is not None
    assert operation.error["code"] == "host.forgotten"
    assert plane.machine(T4_HOST).state() | {"site": None} == before | {"site": None}


@pytest.mark.parametrize("confirm", ["", "T4", L40S_HOST])
def test_another_name_confirms_nothing(plane: ControlPlane, confirm: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        plane.services.hosts.forget(T4_HOST, confirm=confirm)
    assert refused.value.code == "host.not_confirmed"
    assert states(plane)["gone"] == "running"


def test_a_host_that_answers_is_not_given_up(plane: ControlPlane) -> None:
    with pytest.raises(Conflict) as refused:
        plane.services.hosts.forget(L40S_HOST, confirm=L40S_HOST)
    assert refused.value.code == "host.answers"
    with pytest.raises(NotFound):
        plane.services.hosts.forget("nobody", confirm="nobody")


def test_vms_of_a_silent_host_are_unknown_since_it_was_seen_last(plane: ControlPlane) -> None:
    seen = plane.services.hosts.get(T4_HOST).host.last_seen_at
    assert plane.services.vms.unseen() == {T4_HOST: seen}
    plane.machine(T4_HOST).answers = True
    plane.reconciler.round()
    assert plane.services.vms.unseen() == {}
