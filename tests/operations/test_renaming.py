# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal, NotFound
from tests.fakes.control_plane import T4_HOST, ControlPlane, plane_with
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
