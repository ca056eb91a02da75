# SPDX-License-Identifier: Apache-2.0
"""MIG layouts without VMs: applied, left alone by VMs, released."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity
from orchestrator.core.hosts.mig_layout import KEEPER, MigEntry
from orchestrator.services.fleet.view import SANITISING
from orchestrator.store.records import ClaimLost
from tests.fakes.cleaned import CLEANED
from tests.fakes.control_plane import A100_HOST, L40S_HOST, ControlPlane, control_plane, create_vm
from tests.operations.layouts import wanted

GPU = "0000:c1:00.0"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    made.add_host(A100_HOST)
    yield made
    made.store.close()


def apply(plane: ControlPlane, *profiles: str, enabled: bool = True) -> str:
    started = plane.services.mig_layouts.apply(A100_HOST, wanted(*profiles, enabled=enabled))
    plane.engine.drain()
    return "nothing" if started.operation is None else plane.services.operations.get(started.operation).state


def instances(plane: ControlPlane) -> dict[int, tuple[str, tuple[str, ...]]]:
    return plane.machine(A100_HOST).gpus[0].instances


def test_a_layout_is_cut_and_the_same_again_does_nothing(plane: ControlPlane) -> None:
    assert apply(plane, "1g.10gb", "1g.20gb") == "done"
    assert instances(plane) == {5: ("1g.10gb", (KEEPER,)), 6: ("1g.20gb", (KEEPER,))}
    assert apply(plane, "1g.20gb", "1g.10gb") == "nothing"


def test_another_layout_touches_only_what_is_different(plane: ControlPlane) -> None:
    apply(plane, "1g.20gb")
    plane.hosts.effects.clear()
    assert apply(plane, "1g.20gb", "1g.20gb") == "done"
    assert instances(plane) == {4: ("1g.20gb", (KEEPER,)), 6: ("1g.20gb", (KEEPER,))}
    assert "DestroyGpuInstance" not in plane.hosts.effects


def test_no_vm_comes_onto_a_gpu_with_a_layout_until_it_is_released(plane: ControlPlane) -> None:
    apply(plane, "1g.10gb")
    with pytest.raises(NoCapacity) as caught:
        plane.services.vms.create(create_vm(profile="GRID A100D-1-10C"))
    assert "kept for a MIG layout" in " ".join(one.message for one in caught.value.reasons)
    plane.services.mig_layouts.release(A100_HOST, None)
    plane.engine.drain()
    assert instances(plane) == {}
    started = plane.services.vms.create(create_vm(profile="GRID A100D-1-10C"))
    plane.engine.drain()
    assert plane.services.operations.get(str(started.operation)).state == "done"


@pytest.mark.fault("F77")
def test_a_gpu_with_a_vm_is_refused_with_its_name_and_nothing_is_changed(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm("train", profile="GRID A100D-1-10C"))
    plane.engine.drain()
    before = plane.machine(A100_HOST).state()
    for entries in (wanted("1g.20gb"), wanted(enabled=False)):
        with pytest.raises(Conflict) as caught:
            plane.services.mig_layouts.apply(A100_HOST, entries)
        assert caught.value.code == "gpu.in_use"
        assert "VM default/train" in caught.value.message
    assert plane.machine(A100_HOST).state() == before
    assert plane.services.hosts.get(A100_HOST).host.mig_layouts == ()


def test_what_somebody_else_made_is_in_the_way_by_name(plane: ControlPlane) -> None:
    plane.machine(A100_HOST).gpus[0].mig = True
    instances(plane)[0] = ("1g.10gb", ())
    plane.observer.observe(A100_HOST)
    (plan,) = plane.services.mig_layouts.plan(A100_HOST, wanted("1g.20gb"))
    assert plan.in_the_way == ("GPU instance 1g.10gb at slot 0",)
    with pytest.raises(Conflict):
        plane.services.mig_layouts.apply(A100_HOST, wanted("1g.20gb"))


def test_a_gpu_that_is_sanitising_takes_no_layout(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm("train", profile="GRID A100D-1-10C"))
    plane.engine.drain()
    with plane.store.begin() as tx:
        (vm,) = tx.vms.list()
        tx.vms.remove(vm.id, replace(CLEANED, otherwise=None))
    (plan,) = plane.services.mig_layouts.plan(A100_HOST, wanted("1g.20gb"))
    assert SANITISING in plan.in_the_way


def test_a_gpu_that_leaves_mig_is_kept_for_nothing(plane: ControlPlane) -> None:
    apply(plane, "1g.10gb")
    assert apply(plane, enabled=False) == "done"
    assert plane.machine(A100_HOST).gpus[0].mig is False
    assert plane.services.hosts.get(A100_HOST).host.mig_layouts == ()
    assert apply(plane, enabled=False) == "nothing"


def test_a_host_with_a_layout_is_not_given_back(plane: ControlPlane) -> None:
    apply(plane, "1g.10gb")
    with pytest.raises(Conflict) as caught:
        plane.services.hosts.remove(A100_HOST)
    assert caught.value.code == "host.has_layouts"


def test_a_layout_is_no_orphan_and_one_that_is_not_there_is_told(plane: ControlPlane) -> None:
    apply(plane, "1g.10gb", "1g.20gb")
    assert plane.findings.observe(A100_HOST) == ()
    del instances(plane)[5]
    (found,) = plane.findings.observe(A100_HOST)
    assert (found.finding.code, found.finding.observed) == ("mig.layout_differs", "no 1g.10gb at slot 5")
    assert apply(plane, "1g.10gb", "1g.20gb") == "done"
    assert not [one for one in plane.findings.observe(A100_HOST) if one.cleared_at is None]


ENTRY = wanted("1g.10gb")[0]


@pytest.mark.parametrize(
    "host,entry,code",
    [
        (A100_HOST, replace(ENTRY, devices=(1,)), "mig.config_no_such_gpu"),
        (A100_HOST, replace(ENTRY, filters=("0x233010DE",)), "mig.config_no_gpu"),
        (A100_HOST, replace(ENTRY, counts=(("1g.5gb", 1),)), "mig.config_no_such_profile"),
        (A100_HOST, replace(ENTRY, counts=(("1g.10gb", 8),)), "mig.config_does_not_fit"),
        (L40S_HOST, replace(ENTRY, devices=(0,)), "mig.config_no_mig"),
        (L40S_HOST, ENTRY, "mig.config_no_gpu"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_changed(
    plane: ControlPlane, host: str, entry: MigEntry, code: str
) -> None:
    plane.add_host(L40S_HOST)
    with pytest.raises(InvalidInput) as caught:
        plane.services.mig_layouts.apply(host, (entry,))
    assert caught.value.code == code
    assert plane.machine(A100_HOST).gpus[0].mig is False


def test_a_filter_may_name_the_board_as_well(plane: ControlPlane) -> None:
    snapshot = plane.services.hosts.get(A100_HOST).snapshot
    assert snapshot is not None
    gpu = snapshot.gpus[0]
    ids = f"0x{gpu.pci_device}{gpu.pci_vendor}:0x{gpu.pci_subsystem_device}{gpu.pci_subsystem_vendor}"
    for one in (ids, ids.partition(":")[0]):
        assert plane.services.mig_layouts.plan(A100_HOST, (replace(ENTRY, filters=(one,)),))


def test_releasing_what_has_no_layout_is_refused(plane: ControlPlane) -> None:
    for gpu in (None, GPU, "nonsense"):
        with pytest.raises(InvalidInput) as caught:
            plane.services.mig_layouts.release(A100_HOST, gpu)
        assert caught.value.code == "mig.layout_none"


def test_a_gpu_that_a_vm_claimed_in_the_same_moment_is_not_kept(plane: ControlPlane) -> None:
    """Both were planned on the GPU while it was empty: the database decides."""
    (plan,) = plane.services.mig_layouts.plan(A100_HOST, wanted("1g.20gb"))
    plane.services.vms.create(create_vm("train", profile="GRID A100D-1-10C"))
    plane.engine.drain()
    with pytest.raises(ClaimLost), plane.store.begin() as tx:
        tx.hosts.keep_layout(A100_HOST, plan.change.wanted)
