# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal, NotFound
from orchestrator.services.messages import VmChange
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.operations.test_vm_life import finished, make


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def test_a_stopped_vm_gets_another_name_on_its_host_and_in_the_database(plane: ControlPlane) -> None:
    vms, machine = plane.services.vms, plane.machine(T4_HOST)
    make(plane, start=False)
    vm = vms.get("default", "train")
    renamed = finished(plane, vms.rename("default", "train", "infer").operation)
    assert (renamed.state, renamed.subject_name) == ("done", "default/train")
    assert vms.get("default", "infer") == replace(vm, spec=replace(vm.spec, name="infer"), operation=renamed.id)
    assert "<name>default.infer</name>" in machine.domains[vm.id][0]
    with pytest.raises(NotFound):
        vms.get("default", "train")
    assert vms.rename("default", "infer", "infer").operation is None
    assert finished(plane, vms.start("default", "infer").operation).state == "done"
    (record,) = [one for one in plane.services.tenancy.audit.list(limit=9) if one.action.startswith("rename_vm")]
    assert (record.action, record.subject) == ("rename_vm to infer", "default/train")


def test_a_name_that_is_taken_a_running_vm_and_one_that_is_worked_on_are_refused(plane: ControlPlane) -> None:
    vms = plane.services.vms
    make(plane, start=False)
    make(plane, "other")
    with pytest.raises(Conflict) as taken:
        vms.rename("default", "train", "other")
    with pytest.raises(Conflict) as running:
        vms.rename("default", "other", "free")
    vms.rename("default", "train", "one")
    with pytest.raises(Conflict) as busy:
        vms.rename("default", "one", "two")
    assert [one.value.code for one in (taken, running, busy)] == ["vm.exists", "vm.running", "vm.busy"]


def test_a_vm_whose_host_refuses_its_new_name_gets_the_old_one_back_unless_that_is_taken(plane: ControlPlane) -> None:
    vms = plane.services.vms
    refusals: list[Fatal] = []

    def strike(_number: int, moment: str, name: str) -> Fatal | None:
        return refusals.pop() if refusals and (moment, name) == ("before", "DefineDomain") else None

    make(plane, start=False)
    plane.hosts.strike = strike
    refusals.append(Fatal("test.refused", "no"))
    assert finished(plane, vms.rename("default", "train", "one").operation).state == "undone"
    assert vms.get("default", "train").state == "stopped"
    refusals.append(Fatal("test.refused", "no"))
    begun = vms.rename("default", "train", "one")
    with plane.store.begin() as tx:  # somebody is faster than the undo
        vm = vms.get("default", "one")
        twin = replace(vm, id=plane.ids.new_uuid(), spec=replace(vm.spec, name="train"))
        tx.vms.add(twin)
    undone = finished(plane, begun.operation)
    assert (undone.state, vms.get("default", "one").state) == ("undone", "stopped")
    assert "it keeps the new name" in undone.warnings[-1]


def test_a_vm_asked_for_again_with_other_labels_is_refused_and_told_how_to_change_them(plane: ControlPlane) -> None:
    vms, wanted = plane.services.vms, replace(create_vm("labelled"), labels={"team": "a"})
    vms.create(wanted)
    plane.engine.drain()
    vms.change("default", "labelled", VmChange(labels={"rack": "3"}))
    assert vms.create(wanted).existing, "labels that it does not name stay"
    assert vms.create(replace(wanted, labels={})).existing
    with pytest.raises(Conflict) as refused:
        vms.create(replace(wanted, labels={"team": "b"}))
    assert (refused.value.code, "vm set labelled --label team=b" in str(refused.value.hint)) == ("vm.labelled", True)
    assert vms.get("default", "labelled").spec.labels == (("rack", "3"), ("team", "a"))


def test_labels_are_written_and_nothing_that_changed_meanwhile(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm("busy"))
    plane.engine.drain()
    before = plane.services.vms.get("default", "busy")
    with plane.store.begin() as tx:
        tx.vms.update(replace(before, lease_end=5e9, state="stopping"))
        tx.vms.set_spec(before.id, replace(before.spec, labels=(("team", "a"),)))
    after = plane.services.vms.get("default", "busy")
    assert (after.lease_end, after.state, after.spec.labels) == (5e9, "stopping", (("team", "a"),))
