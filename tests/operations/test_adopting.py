# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound, QuotaExceeded, VgpuctlError
from orchestrator.core.operation import Operation
from orchestrator.core.vms.vm import Vm
from orchestrator.services.messages import AdoptVm
from orchestrator.services.tenancy.quotas import QuotaService
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_machine import FOREIGN_DISK
from tests.fakes.fake_nics import CARD
from tests.fakes.foreign import (
    DOMAIN_UUID,
    MDEV_SOURCE,
    MDEV_UUID,
    domain_xml,
    foreign_domain,
    pci_source,
    with_function,
    with_functions,
    with_mdev,
)

WANTED = AdoptVm(host=T4_HOST, domain="byhand", tenant="default")


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    made = control_plane(tmp_path)
    made.add_host(T4_HOST)
    made.add_host(L40S_HOST)
    return made


def adopt(plane: ControlPlane, wanted: AdoptVm = WANTED) -> Operation:
    plane.observer.observe(wanted.host)
    started = plane.services.adoption.adopt(wanted)
    plane.engine.drain()
    return plane.services.operations.get(str(started.operation))


def vm_of(plane: ControlPlane, name: str = "byhand") -> Vm:
    return plane.services.vms.get("default", name)


def done(plane: ControlPlane, operation_id: str | None) -> None:
    plane.engine.drain()
    operation = plane.services.operations.get(str(operation_id))
    assert operation.state == "done", operation.error


def test_a_running_domain_with_an_mdev_becomes_a_vm_and_nothing_of_it_is_changed(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    with_mdev(machine, gpu=1)
    before = dict(machine.domains)
    assert adopt(plane).state == "done"
    vm = vm_of(plane)
    assert (vm.id, vm.state, vm.host, vm.spec.adopted) == (DOMAIN_UUID, "running", T4_HOST, "byhand")
    assert (vm.spec.vcpus, vm.spec.memory_mib, vm.spec.disk_bytes) == (3, 4096, FOREIGN_DISK)
    assert [(one.name, one.type_name) for one in vm.devices] == [(MDEV_UUID, "GRID T4-2Q")]
    assert machine.domains == before
    assert machine.mdevs[MDEV_UUID][2] == vm.id
    with plane.store.read() as tx:
        claim = tx.claims.find(vm.id)
    assert claim is not None
    assert (claim.devices[0].gpu, claim.vcpus, claim.memory_mib) == (machine.gpus[1].address, 3, 4096)
    assert [effect for effect in plane.hosts.effects if "Domain" in effect] == ["AdoptDomain"]


def test_a_domain_with_a_typed_virtual_function_claims_that_function(plane: ControlPlane) -> None:
    function = with_function(plane.machine(L40S_HOST))
    assert adopt(plane, replace(WANTED, host=L40S_HOST, name="train")).state == "done"
    with plane.store.read() as tx:
        claim = tx.claims.find(vm_of(plane, "train").id)
    assert claim is not None
    assert claim.devices[0].function == function


def test_doctor_names_the_command_and_has_nothing_to_say_afterwards(plane: ControlPlane) -> None:
    with_mdev(plane.machine(T4_HOST))
    reasons = [one.finding.reason for one in plane.findings.observe(T4_HOST)]
    assert len(reasons) == 2
    assert all(f"'vgpuctl adopt-vm {T4_HOST} {DOMAIN_UUID}'" in reason for reason in reasons)
    adopt(plane)
    plane.engine.drain()
    plane.world.clock.sleep(1)
    assert plane.findings.observe(T4_HOST) == ()


def test_the_same_request_again_is_answered_with_the_same_vm(plane: ControlPlane) -> None:
    with_mdev(plane.machine(T4_HOST))
    plane.observer.observe(T4_HOST)
    first = plane.services.adoption.adopt(WANTED)
    again = plane.services.adoption.adopt(replace(WANTED, domain=DOMAIN_UUID))
    assert (again.operation, again.existing) == (first.operation, True)
    plane.engine.drain()
    later = plane.services.adoption.adopt(WANTED)
    assert (later.operation, later.existing) == (None, True)


def test_an_adopted_vm_stops_and_starts_with_the_definition_it_came_with(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    with_mdev(machine)
    xml = machine.domains[DOMAIN_UUID][0]
    adopt(plane)
    done(plane, plane.services.vms.stop("default", "byhand").operation)
    assert machine.mdevs == {}
    done(plane, plane.services.vms.start("default", "byhand").operation)
    assert machine.domains[DOMAIN_UUID] == (xml, True)
    assert machine.mdevs[MDEV_UUID] == (machine.gpus[0].address, "GRID T4-2Q", DOMAIN_UUID)


def test_deleting_an_adopted_vm_never_asks_for_a_disk_to_be_deleted(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    with_mdev(machine)
    machine.volumes[f"{DOMAIN_UUID}.qcow2"] = ("somebody", 7, "")
    adopt(plane)
    plane.hosts.effects.clear()
    operation = plane.services.vms.delete("default", "byhand").operation
    done(plane, operation)
    assert plane.hosts.effects == ["StopDomain", "RemoveMdev", "UndefineDomain"]
    assert list(machine.volumes) == [f"{DOMAIN_UUID}.qcow2"]
    messages = [step.message for step in plane.services.operations.get(str(operation)).steps]
    assert "its disks are not ours: they stay" in messages


def test_a_stopped_vm_of_a_function_that_is_taken_says_so_instead_of_moving(plane: ControlPlane) -> None:
    machine = plane.machine(L40S_HOST)
    function = with_function(machine)
    adopt(plane, replace(WANTED, host=L40S_HOST))
    done(plane, plane.services.vms.stop("default", "byhand").operation)
    machine.vf_types[function] = ("NVIDIA L40S-12Q", None)
    started = plane.services.vms.start("default", "byhand")
    plane.engine.drain()
    operation = plane.services.operations.get(str(started.operation))
    assert operation.state == "undone"
    assert operation.error is not None
    assert operation.error["code"] == "gpu.no_capacity"


def test_a_domain_that_is_not_taken_over_to_the_end_cannot_be_deleted(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    with_mdev(machine)
    plane.observer.observe(T4_HOST)
    plane.services.adoption.adopt(WANTED)
    with pytest.raises(Conflict, match="not taken over yet"):
        plane.services.vms.delete("default", "byhand")
    plane.engine.drain()
    done(plane, plane.services.vms.delete("default", "byhand").operation)


def test_a_domain_with_several_vgpus_is_adopted_stopped_started_and_deleted_with_all_of_them(
    plane: ControlPlane,
) -> None:
    """Two on one GPU and one on another, as its definition has them."""
    machine = plane.machine(L40S_HOST)
    functions = with_functions(machine)
    before = dict(machine.domains)
    assert adopt(plane, replace(WANTED, host=L40S_HOST)).state == "done"
    vm = vm_of(plane)
    assert tuple(one.name for one in vm.devices) == functions
    assert machine.domains == before
    assert {machine.vf_types[one][1] for one in functions} == {vm.id}
    with plane.store.read() as tx:
        claim = tx.claims.find(vm.id)
    assert claim is not None
    assert [(one.gpu, one.function) for one in claim.devices] == [(one.gpu, one.parent) for one in vm.devices]
    assert claim.devices[0].slots != claim.devices[1].slots
    for verb in ("stop", "start"):
        done(plane, getattr(plane.services.vms, verb)("default", "byhand").operation)
        assert len(machine.vf_types) == (3 if verb == "start" else 0)
    assert tuple(one.name for one in vm_of(plane).devices) == functions
    assert plane.findings.observe(L40S_HOST) == ()
    done(plane, plane.services.vms.delete("default", "byhand").operation)
    assert machine.vf_types == {}


def test_of_a_domain_with_several_vgpus_none_is_taken_when_one_is_on_a_gpu_that_is_not_ours(
    plane: ControlPlane,
) -> None:
    machine = plane.machine(L40S_HOST)
    with_functions(machine)
    with plane.store.begin() as tx:
        tx.hosts.set_gpus(L40S_HOST, [machine.gpus[0].address])
    before = machine.state()
    plane.observer.observe(L40S_HOST)
    with pytest.raises(Conflict) as refused:
        plane.services.adoption.adopt(replace(WANTED, host=L40S_HOST))
    assert refused.value.code == "gpu.not_managed"
    assert machine.state() == before


def test_a_cancelled_adoption_leaves_the_domain_to_whom_it_was(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    with_mdev(machine)
    before = machine.state()
    plane.observer.observe(T4_HOST)
    started = plane.services.adoption.adopt(WANTED)
    plane.services.operations.cancel(str(started.operation))
    plane.engine.drain()
    assert plane.services.operations.get(str(started.operation)).state == "undone"
    assert machine.state() == before
    with pytest.raises(NotFound):
        vm_of(plane)


def _two_devices(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    with_mdev(machine)
    foreign_domain(machine, domain_xml(MDEV_SOURCE, pci_source("0000:99:00.0")))


def _vgpu_and_whole_gpu(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    with_mdev(machine)
    foreign_domain(machine, domain_xml(MDEV_SOURCE, pci_source(machine.gpus[1].address)))


def _vgpu_and_network_function(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    with_mdev(machine)
    machine.nics = (CARD,)
    foreign_domain(machine, domain_xml(MDEV_SOURCE, pci_source(CARD.functions[0].address)))


def _whole_gpu(plane: ControlPlane) -> None:
    foreign_domain(plane.machine(T4_HOST), domain_xml(pci_source(plane.machine(T4_HOST).gpus[0].address)))


def _unmanaged(plane: ControlPlane) -> None:
    with_mdev(plane.machine(T4_HOST))
    with plane.store.begin() as tx:
        tx.hosts.set_gpus(T4_HOST, ["0000:42:00.0"])


def _other_size(plane: ControlPlane) -> None:
    with_mdev(plane.machine(T4_HOST), type_name="GRID T4-4Q")
    for number in range(2):
        plane.services.vms.create(replace(create_vm(f"vm{number}", start=False), host=T4_HOST))
        plane.engine.drain()


def _full(plane: ControlPlane) -> None:
    for number in range(16):
        plane.services.vms.create(replace(create_vm(f"vm{number}", start=False), host=T4_HOST))
    plane.engine.drain()
    with_mdev(plane.machine(T4_HOST))


def _small_host(plane: ControlPlane) -> None:
    with_mdev(plane.machine(T4_HOST))
    plane.machine(T4_HOST).memory_mib = 4096


def _quota(plane: ControlPlane) -> None:
    with_mdev(plane.machine(T4_HOST))
    QuotaService(store=plane.store, clock=plane.world.clock).change("default", {"memory": 1024})


def _name_taken(plane: ControlPlane) -> None:
    with_mdev(plane.machine(T4_HOST))
    plane.services.vms.create(create_vm("byhand", start=False))
    plane.engine.drain()


NOVA = '<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"/></metadata>'


def _with(more: str) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        with_mdev(plane.machine(T4_HOST))
        foreign_domain(plane.machine(T4_HOST), domain_xml(MDEV_SOURCE, more=more))

    return prepare


def _transient(plane: ControlPlane) -> None:
    with_mdev(plane.machine(T4_HOST))
    plane.machine(T4_HOST).transient.add(DOMAIN_UUID)


def test_a_domain_is_found_by_its_uuid_however_that_is_written(plane: ControlPlane) -> None:
    with_mdev(plane.machine(T4_HOST))
    plane.observer.observe(T4_HOST)
    assert adopt(plane, replace(WANTED, domain=DOMAIN_UUID.upper())).state == "done"


def test_a_domain_of_another_controller_is_taken_when_that_one_is_named(plane: ControlPlane) -> None:
    _with(NOVA)(plane)
    plane.observer.observe(T4_HOST)
    for although in (None, "oVirt"):
        with pytest.raises(Conflict, match="nova") as refused:
            plane.services.adoption.adopt(replace(WANTED, although_managed_by=although))
        assert "--although-managed-by nova" in str(refused.value.hint)
    assert adopt(plane, replace(WANTED, although_managed_by="nova")).state == "done"


@pytest.mark.parametrize(
    ("prepare", "error", "code"),
    [
        (lambda _: None, NotFound, "domain.unknown"),
        (lambda plane: foreign_domain(plane.machine(T4_HOST), domain_xml()), Conflict, "domain.no_vgpu"),
        (_two_devices, Conflict, "domain.vgpu_gone"),
        (_vgpu_and_whole_gpu, Conflict, "domain.passthrough"),
        (_vgpu_and_network_function, Conflict, "domain.network_function"),
        (_whole_gpu, Conflict, "domain.passthrough"),
        (
            lambda plane: foreign_domain(plane.machine(T4_HOST), domain_xml(MDEV_SOURCE), running=False),
            Conflict,
            "domain.vgpu_gone",
        ),
        (_unmanaged, Conflict, "gpu.not_managed"),
        (_full, NoCapacity, "gpu.no_capacity"),
        (_small_host, NoCapacity, "host.no_capacity"),
        (_quota, QuotaExceeded, "quota.exceeded"),
        (_name_taken, Conflict, "vm.exists"),
        (_with(NOVA), Conflict, "domain.other_controller"),
        (_with("<seclabel type='none' model='apparmor'/>"), Conflict, "domain.unsafe"),
        (_transient, Conflict, "domain.transient"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_and_nothing_is_written(
    plane: ControlPlane, prepare: Callable[[ControlPlane], None], error: type[VgpuctlError], code: str
) -> None:
    prepare(plane)
    plane.observer.observe(T4_HOST)
    before, known = plane.machine(T4_HOST).state(), plane.services.vms.list(None)
    with pytest.raises(error) as refused:
        plane.services.adoption.adopt(WANTED)
    assert refused.value.code == code
    assert refused.value.hint
    plane.engine.drain()
    assert plane.machine(T4_HOST).state() == before
    assert plane.services.vms.list(None) == known


def test_a_vm_of_ours_is_not_adopted(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    plane.observer.observe(T4_HOST)
    with pytest.raises(Conflict, match="already"):
        plane.services.adoption.adopt(replace(WANTED, domain=vm_of(plane, "train").domain_name, name="other"))


def test_a_domain_whose_name_is_no_vms_name_needs_one(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    with_mdev(machine)
    foreign_domain(machine, domain_xml(MDEV_SOURCE, name="By Hand"))
    plane.observer.observe(T4_HOST)
    with pytest.raises(InvalidInput, match="vm name"):
        plane.services.adoption.adopt(replace(WANTED, domain="By Hand"))
    assert adopt(plane, replace(WANTED, domain="By Hand", name="by-hand")).state == "done"


def test_a_gpu_that_is_claimed_for_another_size_is_said_to_be(plane: ControlPlane) -> None:
    _other_size(plane)
    machine = plane.machine(T4_HOST)
    claimed = next(vm.devices[0].gpu for vm in plane.services.vms.list(None))
    machine.mdevs[MDEV_UUID] = (claimed, "GRID T4-4Q", None)
    plane.observer.observe(T4_HOST)
    with pytest.raises(Conflict) as refused:
        plane.services.adoption.adopt(WANTED)
    assert refused.value.code == "gpu.cut_differs"


def test_an_adopted_vm_is_called_otherwise_and_its_domain_is_not(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    with_mdev(machine, gpu=1)
    adopt(plane)
    done(plane, plane.services.vms.stop("default", "byhand").operation)
    before = dict(machine.domains)
    done(plane, plane.services.vms.rename("default", "byhand", "train").operation)
    assert machine.domains == before
    assert vm_of(plane, "train").domain_name == "byhand"


def test_a_domains_name_that_no_vm_may_have_is_answered_with_the_option_for_another(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    machine.mdevs[MDEV_UUID] = (machine.gpus[0].address, "GRID T4-2Q", None)
    foreign_domain(machine, domain_xml(MDEV_SOURCE, name="Win 11 (vGPU)"))
    wanted = replace(WANTED, domain="Win 11 (vGPU)")
    with pytest.raises(InvalidInput) as refused:
        adopt(plane, wanted)
    assert (refused.value.code, "--name" in str(refused.value.hint)) == ("vm.name_invalid", True)
    assert adopt(plane, replace(wanted, name="win-11")).state == "done"
