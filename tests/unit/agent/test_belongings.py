# SPDX-License-Identifier: Apache-2.0
"""A VM is defined and started out of what is its own; the ledger says what that is, whatever a controller says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.images.disk_images import create_overlay
from orchestrator.agent.libvirt.domain_devices import parts_of
from orchestrator.core.actions.host_actions import (
    DefineDomain,
    EnsureNetwork,
    MakeVgpu,
    RemoveNetwork,
    StartDomain,
    StopDomain,
)
from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.errors import Conflict, Denied, InvalidInput, VgpuctlError
from orchestrator.core.gpu.device import Device
from tests.unit.agent.bench import L40S, MDEV, T4, VF1, Bench, domain_of, mdev

OTHER = "0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2"
VF = Device(kind="vendor_vfio", gpu=L40S, parent=VF1, type_name="NVIDIA L40S-2Q", name=VF1)


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    return furnished


def make_mdev(bench: Bench, vm: str) -> None:
    bench.do(MakeVgpu(vm=vm, uuid=MDEV, parent=T4, type_name="GRID T4-2Q"))


def test_a_vm_of_its_own_parts_is_defined_started_and_defined_again(bench: Bench) -> None:
    make_mdev(bench, bench.vm)
    define = DefineDomain(vm=bench.vm, domain=domain_of(bench.vm, mdev()))
    assert bench.do(define).changed
    assert not bench.do(define).changed
    assert bench.do(StartDomain(vm=bench.vm)).changed
    assert not bench.do(StartDomain(vm=bench.vm)).changed


def test_a_vm_is_defined_before_its_device_is_made_and_started_only_after(bench: Bench) -> None:
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm, mdev())))
    with pytest.raises(Conflict) as refused:
        bench.do(StartDomain(vm=bench.vm))
    assert refused.value.code == "vm.device_foreign"
    make_mdev(bench, bench.vm)
    assert bench.do(StartDomain(vm=bench.vm)).changed


def test_no_definition_takes_what_is_another_vms(bench: Bench) -> None:
    make_mdev(bench, OTHER)
    bench.do(MakeVgpu(vm=OTHER, parent=VF1, type_name="NVIDIA L40S-2Q"))
    mine = domain_of(bench.vm)
    for taken, code in (
        (replace(mine, devices=(mdev(),)), "vm.device_foreign"),
        (replace(mine, devices=(VF,)), "vm.device_foreign"),
        (replace(mine, volume=f"{OTHER}.qcow2"), "vm.file_foreign"),
        (replace(mine, seed=f"{OTHER}.iso"), "vm.file_foreign"),
        (replace(mine, network="backbone"), "network.foreign"),
    ):
        with pytest.raises(Conflict) as refused:
            bench.do(DefineDomain(vm=bench.vm, domain=taken))
        assert refused.value.code == code
    assert bench.domains_there() == {}


def test_a_gpu_that_was_not_given_to_us_is_in_no_definition(bench: Bench) -> None:
    bench.ledger.manage_gpus((T4,))
    with pytest.raises(Denied) as refused:
        bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm, VF)))
    assert refused.value.code == "gpu.not_managed"


def test_a_device_that_became_anothers_since_is_not_taken_by_a_start(bench: Bench) -> None:
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm, mdev())))
    make_mdev(bench, OTHER)
    with pytest.raises(Conflict) as refused:
        bench.do(StartDomain(vm=bench.vm))
    assert (refused.value.code, refused.value.details) == ("vm.device_foreign", f"{MDEV}: owner {OTHER}")


def test_a_disk_that_became_a_link_is_not_taken(bench: Bench, tmp_path: Path) -> None:
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))
    disk = bench.host.paths.volumes / f"{bench.vm}.qcow2"
    disk.rename(tmp_path / "elsewhere")
    disk.symlink_to(tmp_path / "elsewhere")
    for action in (DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)), StartDomain(vm=bench.vm)):
        with pytest.raises(Conflict) as refused:
            bench.do(action)
        assert refused.value.code == "vm.file_foreign"


def _with(old: str, new: str) -> Callable[[str], str]:
    def change(xml: str) -> str:
        assert old in xml
        return xml.replace(old, new, 1)

    return change


_END = "<backingStore/>"
_FORMAT, _FILE = "<format type='qcow2'/>", "<source file='/var/lib/x.qcow2'/>"


def _beneath(*parts: str, type: str = "file") -> Callable[[str], str]:  # noqa: A002 - as libvirt calls it
    """The first disk says that this is beneath it."""
    return _with('<target dev="vda"', f"<backingStore type='{type}'>{''.join(parts)}</backingStore><target dev=\"vda\"")


CHANGED_BEFORE: dict[str, tuple[Callable[[str], str], str]] = {
    "a file of the host": (lambda xml: re.sub(' file="[^"]*"', ' file="/etc/shadow"', xml, count=1), "vm.file_foreign"),
    "a block device": (
        _with("</devices>", "<disk type='block'><source dev='/dev/sda'/><target dev='vdb'/></disk></devices>"),
        "vm.definition_foreign",
    ),
    "an emulator": (_with("<devices>", "<devices><emulator>/tmp/evil</emulator>"), "vm.definition_foreign"),
    "a directory of the host": (
        _with("</devices>", "<filesystem><source dir='/'/><target dir='x'/></filesystem></devices>"),
        "vm.definition_foreign",
    ),
    "a screen on the net": (_with("</devices>", "<graphics type='vnc' listen='0.0.0.0'/></devices>"),
                            "vm.definition_foreign"),
    "no confinement": (_with('<seclabel type="dynamic" relabel="yes" />', "<seclabel type='none'/>"),
                       "vm.definition_foreign"),
    "arguments of QEMU": (
        _with("</domain>", "<q:commandline xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'/></domain>"),
        "vm.definition_foreign",
    ),
    "a bridge": (_with('<interface type="network">', "<interface type='bridge'>"), "vm.definition_foreign"),
    "a PCI device": (
        _with("</devices>", "<hostdev type='pci'><source><address domain='0' bus='0x99' slot='0' function='0'/>"
              "</source></hostdev></devices>"),
        "vm.device_foreign",
    ),
    "another network": (_with('network="default"', "network='backbone'"), "network.foreign"),
    "a file for random numbers": (_with("/dev/urandom", "/etc/shadow"), "vm.definition_foreign"),
    "a kernel of the host": (_with("<os>", "<os><kernel>/boot/vmlinuz</kernel>"), "vm.definition_foreign"),
    "a chain without formats": (_beneath("<source file='/etc/shadow'/>"), "vm.definition_foreign"),
    "a chain without an end": (_beneath(_FORMAT, _FILE), "vm.definition_foreign"),
    "a chain of two": (_beneath(_FORMAT, _FILE, f"<backingStore type='file'>{_FORMAT}{_FILE}{_END}</backingStore>"),
                       "vm.definition_foreign"),
    "a chain over the net": (_beneath(_FORMAT, "<source protocol='nbd'/>", _END, type="network"),
                             "vm.definition_foreign"),
    "a chain to a block device": (_beneath("<format type='raw'/>", "<source dev='/dev/sda'/>", _END, type="block"),
                                  "vm.definition_foreign"),
    "a chain whose format is another": (_beneath("<format type='raw'/>", f"<source file='{'0' * 64}.qcow2'/>", _END),
                                        "vm.definition_foreign"),
    "a chain to a file of the host": (_beneath("<format type='raw'/>", "<source file='/etc/x.raw'/>", _END),
                                      "vm.file_foreign"),
    "a chain to another image": (_beneath("<format type='raw'/>", f"<source file='{'0' * 64}.raw'/>", _END),
                                 "vm.file_foreign"),
    "a mirror": (_with("<target dev=\"vda\"", "<mirror type='file' file='/etc/x'/><target dev=\"vda\""),
                 "vm.definition_foreign"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGED_BEFORE)
def test_a_definition_from_before_that_takes_more_is_not_started(bench: Bench, what: str) -> None:
    """As the protocol before could bring it: text that a controller wrote."""
    change, code = CHANGED_BEFORE[what]
    xml = change(domain_xml(bench.vm, domain_of(bench.vm), storage=str(bench.host.paths.storage)))
    with pytest.raises(VgpuctlError) as refused:
        bench.belongings.check_started(bench.vm, parts_of(xml))
    assert refused.value.code == code


def test_the_image_beneath_a_disk_is_written_down_and_no_header_is_asked(bench: Bench) -> None:
    """Whoever owns the QEMU of a VM can write into the head of its disk."""
    volumes, images = bench.host.paths.volumes, bench.host.paths.images
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))
    written = parts_of(bench.domains_there()[bench.vm]).images
    assert written == ((str(volumes / f"{bench.vm}.qcow2"), str(next(iter(images.iterdir())))),)
    others = images / f"{'0' * 64}.raw"
    others.write_bytes(bytes(4096))
    create_overlay(volumes / f"{bench.vm}.qcow2", base=others, base_format="raw", size_bytes=2**20)
    assert not bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm))).changed
    assert parts_of(bench.domains_there()[bench.vm]).images == written


def test_a_disk_whose_head_names_a_file_for_its_data_is_not_taken(bench: Bench, tmp_path: Path) -> None:
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))
    disk = bench.host.paths.volumes / f"{bench.vm}.qcow2"
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", f"data_file={tmp_path / 'data'}", str(disk), "1M"]
    subprocess.run(create, check=True)
    base = next(iter(bench.host.paths.images.iterdir()))
    subprocess.run(["qemu-img", "rebase", "-u", "-f", "qcow2", "-b", str(base), "-F", "raw", str(disk)], check=True)
    for action in (DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)), StartDomain(vm=bench.vm)):
        with pytest.raises(Conflict) as refused:
            bench.do(action)
        assert refused.value.code == "vm.file_foreign"


def test_a_disk_from_before_is_written_down_by_its_header(bench: Bench) -> None:
    bench.ledger.claim(f"volume:{bench.vm}.qcow2", bench.vm)
    image = next(iter(bench.host.paths.images.iterdir()))
    assert bench.storage.image_beneath(bench.vm, f"{bench.vm}.qcow2") == image.name
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))
    assert [Path(path).name for _, path in parts_of(bench.domains_there()[bench.vm]).images] == [image.name]


def test_a_definition_without_its_chain_still_starts_and_gets_it_when_it_is_written_again(bench: Bench) -> None:
    """As agents before wrote them."""
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))
    xml = bench.domains_there()[bench.vm]
    bench.libvirt.defineXML(re.sub(r"<backingStore type.*</backingStore>", "", xml, flags=re.DOTALL))
    assert parts_of(bench.domains_there()[bench.vm]).images == ()
    assert bench.do(StartDomain(vm=bench.vm)).changed
    bench.do(StopDomain(vm=bench.vm, grace_seconds=0))
    assert bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm))).changed
    assert bench.domains_there()[bench.vm] == xml


def test_a_definition_that_somebody_changed_does_not_start(bench: Bench) -> None:
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))
    change, code = CHANGED_BEFORE["a directory of the host"]
    bench.libvirt.defineXML(change(bench.domains_there()[bench.vm]))
    with pytest.raises(Denied) as refused:
        bench.do(StartDomain(vm=bench.vm))
    assert refused.value.code == code
    assert not bench.libvirt.lookupByUUIDString(bench.vm).isActive()
    assert bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm))).changed
    assert bench.do(StartDomain(vm=bench.vm)).changed


def test_a_network_of_the_hosts_own_is_taken_only_where_it_is_as_ours_would_be(bench: Bench) -> None:
    forward = {"routed": "<forward mode='route'/>", "nat": "<forward mode='nat'/>"}
    for mode, element in forward.items():
        bench.libvirt.networkDefineXML(
            f"<network><name>host-{mode}</name>{element}<ip address='10.9.0.1' netmask='255.255.255.0'/></network>"
        )
    try:
        for name, subnet in (("host-routed", "10.9.0.0/24"), ("host-nat", "10.10.0.0/24")):
            with pytest.raises(Conflict) as refused:
                bench.do(EnsureNetwork(name=name, subnet=subnet))
            assert refused.value.code == "network.foreign"
        assert bench.do(EnsureNetwork(name="host-nat", subnet="10.9.0.0/24")).changed
        bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), network="host-nat")))
        assert bench.do(RemoveNetwork(name="host-nat")).changed
        assert not bench.libvirt.networkLookupByName("host-nat").isActive()
    finally:
        for mode in forward:
            bench.libvirt.networkLookupByName(f"host-{mode}").undefine()


def test_the_default_network_that_was_there_stays_when_the_host_is_given_back(bench: Bench) -> None:
    bench.do(RemoveNetwork(name="default"))
    assert bench.libvirt.networkLookupByName("default").isActive()
    with pytest.raises(Conflict):
        bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))


def test_a_vm_from_before_starts_on_a_network_that_nobody_wrote_down(bench: Bench) -> None:
    bench.do(DefineDomain(vm=bench.vm, domain=domain_of(bench.vm)))
    bench.ledger.release("used-network:default")
    assert bench.do(StartDomain(vm=bench.vm)).changed
    bench.do(StopDomain(vm=bench.vm, grace_seconds=0))


@pytest.mark.parametrize(("name", "subnet"), [("a/b", "10.9.0.0/24"), ("a", "8.8.8.0/24"), ("a", "10.9.0.0/24\n")])
def test_a_network_is_a_name_and_a_private_subnet(bench: Bench, name: str, subnet: str) -> None:
    with pytest.raises(InvalidInput):
        bench.do(EnsureNetwork(name=name, subnet=subnet))


def test_a_host_without_apparmor_and_selinux_starts_what_it_was_given(bench: Bench) -> None:
    xml = domain_xml(bench.vm, domain_of(bench.vm))
    label = '<seclabel type="dynamic" relabel="yes" />'
    assert parts_of(xml.replace(label, "<seclabel type='none' model='none'/>")).others == ()
    assert parts_of(xml.replace(label, "<seclabel type='none' model='apparmor'/>")).others == ("seclabel",)


def test_what_we_write_takes_nothing_but_what_is_named(bench: Bench) -> None:
    parts = parts_of(domain_xml(bench.vm, domain_of(bench.vm, mdev(), VF)))
    assert parts.others == ()
    assert parts.devices == (MDEV, VF1)
    assert [Path(path).name for path in parts.files] == [f"{bench.vm}.qcow2", f"{bench.vm}.iso"]
    assert parts.networks == ("default",)
