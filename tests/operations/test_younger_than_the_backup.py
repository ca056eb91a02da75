# SPDX-License-Identifier: Apache-2.0
"""What was made after the backup is on its host, and the restored database does not know it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.vms.vm import Vm
from orchestrator.server.backup import back_up, restore
from orchestrator.services.messages import AdoptVm
from orchestrator.services.vms.volumes import VolumeTraits
from tests.fakes.control_plane import KEY, T4_HOST, ControlPlane, control_plane, create_vm
from tests.operations.volumes import SIZE

NOW = 1_800_000_000.0
LIMITS = DiskLimits(iops=500)
"""Of its data volume."""


@pytest.fixture(params=["running", "stopped"])
def young(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ControlPlane, Vm]]:
    """The restored plane, and the VM as the lost database had it. It has a data volume."""
    old = tmp_path / "old"
    (old / "secrets").mkdir(parents=True)
    (old / "secrets" / "database_key").write_bytes(KEY)
    before = control_plane(old)
    before.add_host(T4_HOST)
    before.services.vms.create(create_vm("known"))
    before.engine.drain()
    back_up(old, tmp_path / "backup")
    before.services.volumes.create("default", "data", SIZE, traits=VolumeTraits(limits=LIMITS))
    before.services.vms.create(replace(create_vm("young"), volumes=("data",)))
    before.engine.drain()
    if request.param == "stopped":
        before.services.vms.stop("default", "young")
        before.engine.drain()
    vm = before.services.vms.get("default", "young")
    before.store.close()
    restore(tmp_path / "new", tmp_path / "backup", NOW)
    made = control_plane(tmp_path / "new", hosts=before.hosts)
    made.ids.count = before.ids.count
    made.look(T4_HOST)
    yield made, vm
    made.store.close()


def adopt(plane: ControlPlane, vm: Vm) -> None:
    wanted = AdoptVm(host=T4_HOST, domain=vm.id, tenant="default", name=None)
    operation = str(plane.services.adoption.adopt(wanted).operation)
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "done"


@pytest.mark.fault("F99")
def test_it_is_taken_over_as_it_was_and_nothing_of_it_is_touched(young: tuple[ControlPlane, Vm]) -> None:
    plane, lost = young
    before = plane.machine(T4_HOST).state()
    adopt(plane, lost)
    vm = plane.services.vms.get("default", "young")
    spec = replace(lost.spec, user_data=None)
    assert vm == replace(lost, operation=vm.operation, created_at=vm.created_at, spec=spec)
    assert plane.machine(T4_HOST).state() == before
    volumes = [one.volume for one in plane.services.volumes.list(None)]
    assert [(of.full_name, of.size_bytes, of.limits) for of in volumes] == [("default/data", SIZE, LIMITS)]


def test_it_lives_on_as_any_other_and_its_host_is_settled(young: tuple[ControlPlane, Vm]) -> None:
    plane, lost = young
    adopt(plane, lost)
    plane.look(T4_HOST)
    assert plane.services.hosts.get(T4_HOST).host.restored is None
    if plane.services.vms.get("default", "young").state == "running":
        plane.services.vms.stop("default", "young")
        plane.engine.drain()
    plane.services.vms.start("default", "young")
    plane.engine.drain()
    assert plane.services.vms.get("default", "young").state == "running"
    plane.services.vms.delete("default", "young")
    plane.engine.drain()
    assert lost.id not in plane.machine(T4_HOST).domains
    assert len(plane.machine(T4_HOST).data) == 1, "its data volume stays"


def test_its_host_stays_unsettled_until_somebody_has_said_what_becomes_of_it(young: tuple[ControlPlane, Vm]) -> None:
    plane, lost = young
    for _ in range(3):
        plane.look(T4_HOST, after_s=3600.0)
    assert plane.services.hosts.get(T4_HOST).host.restored == "seen"
    assert lost.id in plane.machine(T4_HOST).domains


@pytest.mark.fault("F99")
def test_it_is_removed_when_somebody_says_so_and_its_data_volume_by_another_word(
    young: tuple[ControlPlane, Vm],
) -> None:
    plane, lost = young
    machine = plane.machine(T4_HOST)
    (operation,) = plane.findings.remove(host=T4_HOST, owner=lost.id)
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "done"
    assert lost.id not in machine.domains
    assert all(owner != lost.id for owner, _, _ in machine.volumes.values())
    assert all(owner != lost.id for _, _, owner in machine.mdevs.values())
    (file,) = machine.data
    plane.findings.remove(host=T4_HOST, owner=file.split(".")[1])
    plane.engine.drain()
    assert machine.data == {}
    plane.look(T4_HOST)
    assert plane.services.hosts.get(T4_HOST).host.restored is None
    assert plane.services.vms.get("default", "known").state == "running"


def test_what_is_removed_leaves_a_domain_of_that_id_that_the_hosts_ledger_does_not_know(
    young: tuple[ControlPlane, Vm],
) -> None:
    plane, lost = young
    machine = plane.machine(T4_HOST)
    machine.domains[lost.id] = (machine.domains[lost.id][0], False)
    machine.foreign.add(lost.id)
    (operation,) = plane.findings.remove(host=T4_HOST, owner=lost.id)
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "done"
    assert lost.id in machine.domains
    assert all(owner != lost.id for owner, _, _ in machine.volumes.values())


def test_a_vm_that_the_database_knows_is_not_removed_so(young: tuple[ControlPlane, Vm]) -> None:
    plane, _ = young
    known = plane.services.vms.get("default", "known")
    with pytest.raises(NotFound):
        plane.findings.remove(host=T4_HOST, owner=known.id)
    with pytest.raises(Conflict):
        plane.services.adoption.adopt(AdoptVm(host=T4_HOST, domain=known.id, tenant="default", name="other"))
