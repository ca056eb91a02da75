# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
from pathlib import Path

import pytest

from orchestrator.agent.libvirt.domain_devices import DomainText, read_domain_xml
from orchestrator.agent.libvirt.domains import domain_key
from orchestrator.core.actions.host_actions import (
    AdoptDomain,
    DefineDomain,
    MakeVgpu,
    ReleaseDomain,
    UndefineDomain,
)
from orchestrator.core.errors import Conflict, Denied, InvalidInput, NotFound
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.snapshot import DomainSnapshot
from orchestrator.core.wire import ACTIONS
from tests.unit.agent.bench import L40S, L40S_2Q, MDEV, MDEV_SOURCE, T4, VF1, VF_SOURCE, Bench, domain_of, mdev


@pytest.fixture
def bench(bare: Bench) -> Bench:
    return bare


def test_the_agent_performs_every_action(bench: Bench) -> None:
    assert set(bench.handlers) == set(ACTIONS.values())


def test_a_running_domain_and_its_mdev_become_ours_and_nobodys_again(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE)
    written = list(bench.host.writes)
    xml = bench.libvirt.lookupByUUIDString(bench.vm).XMLDesc()
    assert bench.do(bench.adopt_mdev()).changed
    assert not bench.do(bench.adopt_mdev()).changed
    assert bench.owners() == {"domain", "mdev"}
    wanted = bench.wanted.find(bench.vm)
    assert wanted is not None
    assert wanted.devices == (MakeVgpu(vm=bench.vm, uuid=MDEV, parent=T4, type_name="GRID T4-2Q"),)
    release = ReleaseDomain(vm=bench.vm, devices=(mdev(),))
    assert bench.do(release).changed
    assert not bench.do(release).changed
    assert bench.owners() == set()
    assert bench.wanted.find(bench.vm) is None
    assert bench.host.writes == written
    assert bench.libvirt.lookupByUUIDString(bench.vm).XMLDesc() == xml


def test_a_typed_virtual_function_becomes_ours_with_the_type_it_has(bench: Bench) -> None:
    bench.host.set_type(VF1, L40S_2Q)
    bench.define(VF_SOURCE)
    device = Device(kind="vendor_vfio", gpu=L40S, parent=VF1, type_name="NVIDIA L40S-2Q", name=VF1)
    adopt = AdoptDomain(vm=bench.vm, devices=(device,), running=True)
    assert bench.do(adopt).changed
    assert bench.owners() == {"domain", "vf"}
    assert not bench.do(MakeVgpu(vm=bench.vm, parent=VF1, type_name="NVIDIA L40S-2Q")).changed


def test_the_snapshot_tells_a_foreign_domains_size(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE)
    told = seen(bench)
    assert (told.vcpus, told.memory_mib, told.disk_bytes) == (3, 64, 0)
    assert (told.owner, told.devices) == (None, (MDEV,))


def test_a_domain_that_cannot_be_read_loses_itself_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.define(MDEV_SOURCE)
    other = "test"  # which libvirt's test driver has by itself
    problems: list[str] = []

    def refuse(xml: str) -> DomainText:
        if f"<name>{other}</name>" in xml:
            raise InvalidInput("vm.xml_invalid", "the VM's definition is not XML")
        return read_domain_xml(xml)

    monkeypatch.setattr("orchestrator.agent.libvirt.domains.read_domain_xml", refuse)
    found = {one.name: one for one in bench.domains.snapshots(problems.append)}
    assert (found[other].devices, found[other].memory_mib) == ((), None)
    assert (MDEV,) in [one.devices for one in found.values()]
    assert problems == [f"domain {other} cannot be read: the VM's definition is not XML"]


def test_a_function_counts_in_whatever_form_a_domain_has_it() -> None:
    at = "<address type='pci' domain='0x0' bus='0x18' slot='0x2' function='0x{}'/>"
    card = f"<interface type='hostdev' managed='yes'><source>{at.format(1)}</source>{at.format(7)}</interface>"
    disk = f"<disk type='nvme' device='disk'><source namespace='1'>{at.format(2)}</source></disk>"
    beneath = f"<backingStore type='nvme'><source namespace='1'>{at.format(3)}</source></backingStore>"
    disk += f"<disk type='file'><source file='/b'/>{beneath}{at.format(7)}</disk>"
    plain = "<disk type='file'><source file='/a'/></disk><interface type='network'><source network='n'/></interface>"
    found = read_domain_xml(f"<domain><devices>{card}{disk}{plain}</devices></domain>")
    assert found.devices == ("0000:18:02.1", "0000:18:02.2", "0000:18:02.3")


def test_memory_that_numad_places_is_told_so() -> None:
    placed = "<numatune><memory mode='strict' placement='auto'/></numatune>"
    assert read_domain_xml(f"<domain>{placed}</domain>").memory_words == "strict, placed by numad"


def test_an_adopted_domain_is_never_defined_again(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE)
    bench.do(bench.adopt_mdev())
    with pytest.raises(Conflict) as refused:
        bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))
    assert refused.value.code == "vm.adopted"


def test_what_is_not_as_it_was_seen_is_not_adopted(bench: Bench) -> None:
    bench.define(MDEV_SOURCE)
    with pytest.raises(Conflict, match="as it was seen"):
        bench.do(bench.adopt_mdev())
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    with pytest.raises(Conflict, match="as it was seen"):
        bench.do(bench.adopt_mdev("GRID T4-1Q"))
    assert bench.owners() == set()


def test_a_domain_that_takes_something_else_is_not_adopted(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(VF_SOURCE)
    with pytest.raises(Conflict) as refused:
        bench.do(bench.adopt_mdev())
    assert refused.value.code == "vm.definition_differs"
    assert "domain" not in bench.owners()


def test_no_domain_is_adopted_that_is_not_there_or_that_we_made(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    with pytest.raises(NotFound):
        bench.do(bench.adopt_mdev())
    bench.define(MDEV_SOURCE)
    bench.ledger.claim(domain_key(bench.vm), bench.vm, detail="digest")
    with pytest.raises(Conflict) as refused:
        bench.do(bench.adopt_mdev())
    assert refused.value.code == "host.owned_by_other"
    with pytest.raises(Conflict):
        bench.do(ReleaseDomain(vm=bench.vm, devices=(mdev(),)))


def test_what_a_running_domain_has_from_its_next_start_on_is_told_of_it(bench: Bench) -> None:
    bench.define(MDEV_SOURCE, later="<shmem name='a'/>")
    assert seen(bench).unsafe == ("shmem",)
    assert not seen(bench).transient


def test_a_domain_without_a_definition_that_stays_is_told_so(bench: Bench) -> None:
    bench.define(MDEV_SOURCE, stays=False)
    assert seen(bench).transient


def test_no_domain_is_adopted_on_a_disk_of_a_vm_of_ours(bench: Bench, tmp_path: Path) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    ours = bench.host.paths.volumes / "other.qcow2"
    ours.write_bytes(b"")
    between, top = tmp_path / "between.qcow2", tmp_path / "top.qcow2"
    top.write_bytes(qcow2_on(between.name))
    between.write_bytes(qcow2_on(str(ours)))
    for file in (ours, between, top):
        bench.define(MDEV_SOURCE, more=f"<disk type='file'><source file='{file}'/><target dev='vda'/></disk>")
        with pytest.raises(Conflict) as refused:
            bench.do(bench.adopt_mdev())
        assert refused.value.code == "vm.file_foreign"
        assert "domain" not in bench.owners()
        bench.libvirt.lookupByUUIDString(bench.vm).destroy()
        bench.libvirt.lookupByUUIDString(bench.vm).undefine()


@pytest.mark.parametrize("beneath", ["base.qcow2", "top.qcow2", "nbd://192.0.2.1/a", "a\0b", "json:{}", "/dev/null"])
def test_a_disk_on_what_is_not_ours_is_no_obstacle(bench: Bench, tmp_path: Path, beneath: str) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    top = tmp_path / "top.qcow2"
    top.write_bytes(qcow2_on(beneath))
    bench.define(MDEV_SOURCE, more=f"<disk type='file'><source file='{top}'/><target dev='vda'/></disk>")
    assert bench.do(bench.adopt_mdev()).changed


def seen(bench: Bench) -> DomainSnapshot:
    return next(one for one in bench.domains.snapshots(print) if one.uuid == bench.vm)


def qcow2_on(beneath: str) -> bytes:
    """The head of an image that names one beneath it."""
    name = beneath.encode()
    return struct.pack(">4sIQIIQ", b"QFI\xfb", 3, 112, len(name), 16, 1 << 30).ljust(112, b"\0") + name


def test_a_gpu_that_was_not_given_to_us_is_left_alone(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE)
    bench.ledger.manage_gpus((L40S,))
    with pytest.raises(Denied):
        bench.do(bench.adopt_mdev())
    assert bench.owners() == set()


def test_an_adopted_domain_is_undefined_as_one_of_ours(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE)
    bench.do(bench.adopt_mdev())
    with pytest.raises(Conflict, match="running"):
        bench.do(UndefineDomain(vm=bench.vm))
    bench.libvirt.lookupByUUIDString(bench.vm).destroy()
    bench.do(UndefineDomain(vm=bench.vm))
    assert "domain" not in bench.owners()


def test_a_usb_or_scsi_device_of_a_domain_is_no_pci_function() -> None:
    usb = "<hostdev mode='subsystem' type='usb'><source><address bus='1' device='4'/></source></hostdev>"
    scsi = (
        "<hostdev mode='subsystem' type='scsi'><source><adapter name='scsi_host0'/>"
        "<address bus='0' target='0' unit='0'/></source></hostdev>"
    )
    at = "<address domain='0' bus='1' slot='0' function='4'/>"
    pci = f"<hostdev mode='subsystem' type='pci'><source>{at}</source></hostdev>"
    found = read_domain_xml(f"<domain><devices>{usb}{scsi}{pci}</devices></domain>")
    assert found.devices == ("0000:01:00.4",)


METADATA = [
    ("<x:instance xmlns:x='http://openstack.org/xmlns/libvirt/nova/1.1'/>", "nova"),
    ("<x:vm xmlns:x='http://ovirt.org/vm/1.0'/><x:qos xmlns:x='http://ovirt.org/vm/tune/1.0'/>", "oVirt"),
    ("<x:kubevirt xmlns:x='http://kubevirt.io'/>", "KubeVirt"),
    ("<x:vm xmlns:x='http://opennebula.org/xmlns/libvirt/1.0'/>", "OpenNebula"),
    ("<vmtemplate xmlns='unraid' name='Linux'/>", "Unraid"),
    ("<x:vm xmlns:x='https://cloud.example.org/schema/1'/>", "cloud.example.org"),
    ("<x:libosinfo xmlns:x='http://libosinfo.org/xmlns/libvirt/domain/1.0'/>", ""),
    (
        "<x:libosinfo xmlns:x='http://libosinfo.org/xmlns/libvirt/domain/1.0'/><x:a xmlns:x='http://kubevirt.io'/>",
        "KubeVirt",
    ),
    ("", ""),
]


@pytest.mark.parametrize(("metadata", "name"), METADATA)
def test_who_else_holds_a_domain_is_read_of_its_metadata(metadata: str, name: str) -> None:
    assert read_domain_xml(f"<domain><metadata>{metadata}</metadata></domain>").managed_by == name


def test_who_else_holds_a_domain_is_read_of_what_its_firmware_says() -> None:
    entries = "<entry name='manufacturer'>Apache Software Foundation</entry><entry name='product'>{}</entry>"
    told = "<domain><sysinfo type='smbios'><system>" + entries + "</system></sysinfo></domain>"
    assert read_domain_xml(told.format("CloudStack KVM Hypervisor")).managed_by == "CloudStack"
    assert read_domain_xml(told.format("Desk of Jane")).managed_by == ""


QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
FUNCTION = (
    "<hostdev mode='subsystem' type='pci' managed='{}'>"
    "<source><address domain='0' bus='0x2' slot='0' function='0x4'/></source></hostdev>"
)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (f"<devices>{FUNCTION.format('yes')}</devices>", "hostdev with managed='yes'"),
        (f"<q:commandline xmlns:q='{QEMU}'><q:arg value='-S'/></q:commandline>", "qemu:commandline"),
        (f"<q:override xmlns:q='{QEMU}'/>", "qemu:override"),
        ("<devices><shmem name='a'/></devices>", "shmem"),
        ("<devices><filesystem type='mount'/></devices>", "filesystem"),
        ("<seclabel type='none' model='selinux'/>", "seclabel"),
        (f"<q:deprecation xmlns:q='{QEMU}' behavior='omit'/><seclabel type='none' model='none'/>", None),
        (f"<devices>{FUNCTION.format('no')}<graphics type='spice'/></devices>", None),
        ("<devices><hostdev mode='subsystem' type='usb' managed='yes'/></devices>", None),
    ],
)
def test_what_no_vm_may_have_is_told_of_a_domain_by_name(parts: str, told: str | None) -> None:
    assert read_domain_xml(f"<domain>{parts}</domain>").unsafe == (() if told is None else (told,))
