# SPDX-License-Identifier: Apache-2.0
"""Golden definitions, judged by libvirt itself. A change is written with VGPUCTL_WRITE_GOLDEN=1 and then read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import libvirt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.libvirt.domain_devices import read_domain_xml
from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.domain_xml.domain import METADATA_NAMESPACE
from orchestrator.core.domain_xml.firmware import DEFAULT_WINDOW_MIB, MAX_WINDOW_MIB, window_for
from orchestrator.core.domain_xml.interface import GUARD, mac_address
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.cpus import CpuPlace
from orchestrator.core.hosts.domain import DiskLimits, lower
from orchestrator.core.hosts.nic import NicPlace
from orchestrator.core.vms.network import bridged_xml, network_xml
from orchestrator.core.vms.vm import Vm, VmSpec
from tests.fakes.golden import GOLDEN, check_golden
from tests.unit.core.relaxng import is_valid

DEFINITIONS = GOLDEN / "domain_xml"

SPEC = VmSpec(
    name="train",
    tenant="default",
    profile="l40s-12q",
    image="guest",
    vcpus=4,
    memory_mib=8192,
    disk_bytes=20 * 1024**3,
    network="default",
)
DEVICES = {
    "mdev": Device(
        kind="mdev",
        gpu="0000:41:00.0",
        parent="0000:41:00.0",
        type_name="GRID T4-2Q",
        name="6cb3ba9a-8b0a-4b1e-a0f0-94b3c2e2f0c1",
    ),
    "vendor_vfio": Device(
        kind="vendor_vfio", gpu="0000:81:00.0", parent="0000:81:01.4", type_name="NVIDIA L40S-12Q", name="0000:81:01.4"
    ),
    "mig_backed": Device(
        kind="mig_backed",
        gpu="0000:c1:00.0",
        parent="0000:c1:00.4",
        type_name="GRID A100D-1-20C",
        name="3d1c5f10-20f4-4f6e-9a53-2d1a3c7b9e04",
    ),
    "passthrough": Device(
        kind="passthrough", gpu="0000:81:00.0", parent="0000:81:00.0", type_name="NVIDIA L40S", name="0000:81:00.0"
    ),
}


IMAGES = {"mdev": f"{'5f' * 32}.qcow2", "vendor_vfio": f"{'a0' * 32}.raw", "mig_backed": None, "passthrough": None}


def text_of(vm: Vm, image: str | None = None) -> str:
    return domain_xml(vm.id, vm.domain, image=image)


def vm(device: Device, spec: VmSpec = SPEC) -> Vm:
    return Vm(
        id="0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2",
        spec=spec,
        state="creating",
        host="h",
        devices=(device,),
        addresses=(),
        operation=None,
        created_at=0.0,
    )


@pytest.fixture(scope="module")
def judge() -> libvirt.virConnect:
    return libvirt.open("test:///default")


def kept_as_golden(text: str, golden: Path, judge: libvirt.virConnect) -> str:
    """What libvirt keeps of the definition, which is the golden one and passes its schema."""
    check_golden(golden, text)
    domain = judge.defineXMLFlags(text, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    try:
        kept: str = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    finally:
        domain.undefine()
    return kept


@pytest.mark.parametrize("kind", DEVICES)
def test_the_definition_is_the_golden_one_and_libvirt_takes_it(kind: str, judge: libvirt.virConnect) -> None:
    text = text_of(vm(DEVICES[kind]), IMAGES[kind]) + "\n"
    kept_as_golden(text, DEFINITIONS / f"{kind}.xml", judge)


PLACES = {
    "pinned": CpuPlace(shared=(0, 1, 32, 33), pinned=(4, 36, 5, 37), threads=2, nodes=(0,), memory="strict"),
    "pinned_near": CpuPlace(shared=(0, 1), pinned=(4, 36, 5, 37), nodes=(1,), memory="preferred"),
    "shared": CpuPlace(shared=(0, 1, 32, 33)),
    "strict": CpuPlace(shared=(16, 17, 48, 49), nodes=(1,), memory="strict"),
    "huge_pages": CpuPlace(
        shared=(0, 1, 32, 33), nodes=(0, 1), memory="strict", page_kib=1024 * 1024, page_mib=(6144, 2048)
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_where_a_vm_runs_is_as_golden_and_libvirt_takes_and_keeps_it(place: str, judge: libvirt.virConnect) -> None:
    text = text_of(replace(vm(DEVICES["mdev"]), cpus=PLACES[place])) + "\n"
    kept = kept_as_golden(text, DEFINITIONS / f"cpus_{place}.xml", judge)
    assert read_domain_xml(kept).affinity == PLACES[place].affinity
    assert read_domain_xml(kept).memory_words == PLACES[place].memory_words
    for tag in ("memoryBacking", "cputune", "numatune", "cpu/topology"):
        assert (ET.fromstring(kept).find(tag) is None) == (ET.fromstring(text).find(tag) is None)


@pytest.mark.parametrize("window_mib", [16384, 524288])
def test_uefi_is_asked_for_as_golden_with_room_for_bars_only_where_the_firmware_keeps_too_little(
    window_mib: int, judge: libvirt.virConnect
) -> None:
    wanted = replace(vm(DEVICES["passthrough"]), firmware="uefi")
    text = domain_xml(wanted.id, wanted.domain, bar_window_mib=window_mib) + "\n"
    kept = ET.fromstring(
        kept_as_golden(
            text, DEFINITIONS / ("uefi.xml" if window_mib <= DEFAULT_WINDOW_MIB else "uefi_large_bars.xml"), judge
        )
    )
    assert kept.findtext("os/nvram") == f"/var/lib/vgpuctl-agent/nvram/{wanted.id}.fd"


def test_a_guest_that_boots_by_bios_has_no_word_of_uefi_or_of_windows() -> None:
    text = domain_xml(vm(DEVICES["passthrough"]).id, vm(DEVICES["passthrough"]).domain, bar_window_mib=1 << 20)
    assert "efi" not in text
    assert "commandline" not in text


def test_a_tpm_is_asked_for_as_golden_and_libvirt_keeps_it(judge: libvirt.virConnect) -> None:
    wanted = vm(DEVICES["mdev"])
    wanted = replace(wanted, spec=replace(wanted.spec, tpm=True))
    kept = ET.fromstring(kept_as_golden(text_of(wanted) + "\n", DEFINITIONS / "tpm.xml", judge))
    assert kept.find("devices/tpm[@model='tpm-tis']/backend[@type='emulator'][@version='2.0']") is not None


def test_limits_of_disks_are_as_golden_and_libvirt_keeps_them(judge: libvirt.virConnect) -> None:
    limits = DiskLimits(bytes_per_s=200 * 1024**2, iops=500, bytes_per_s_max=400 * 1024**2, iops_max=2000)
    spec = replace(SPEC, disk_limits=limits, volumes=(f"data.{'5f' * 4}-0000-4000-8000-000000000001",))
    kept = ET.fromstring(kept_as_golden(text_of(vm(DEVICES["mdev"], spec)) + "\n", DEFINITIONS / "limits.xml", judge))
    tuned = [{part.tag: part.text for part in tune} for tune in kept.findall("devices/disk[@device='disk']/iotune")]
    assert tuned == [
        {
            "total_bytes_sec": "209715200", "total_iops_sec": "500",
            "total_bytes_sec_max": "419430400", "total_iops_sec_max": "2000",
            "total_bytes_sec_max_length": "10", "total_iops_sec_max_length": "10",
        }
    ] * 2  # fmt: skip
    assert kept.find("devices/disk[@device='cdrom']/iotune") is None
    written = kept.findall("devices/disk[@device='disk']/driver")
    assert {(disk.get("discard"), disk.get("detect_zeroes")) for disk in written} == {("unmap", "unmap")}


_NUMBERS = st.one_of(st.just(0), st.integers(-5, 2**63), st.sampled_from((10, 1024**2, 10_000_000, 1024**4)))


@given(st.builds(DiskLimits, bytes_per_s=_NUMBERS, iops=_NUMBERS, bytes_per_s_max=_NUMBERS, iops_max=_NUMBERS))
def test_limits_that_are_taken_are_ones_that_libvirt_and_qemu_take(limits: DiskLimits) -> None:
    """QEMU's throttling takes at most 1e15, and no burst without a limit or below it."""
    limited = vm(DEVICES["mdev"], replace(SPEC, disk_limits=limits))
    if limits.problem is not None:
        with pytest.raises(InvalidInput):
            text_of(limited)
        return
    text = text_of(limited)
    assert is_valid("domain.rng", text)
    tune = ET.fromstring(text).find("devices/disk/iotune")
    assert tune is not None
    said = {part.tag: int(part.text or "") for part in tune}
    for name in ("total_bytes_sec", "total_iops_sec"):
        burst, length = said.get(f"{name}_max", 0), said.get(f"{name}_max_length", 0)
        assert 0 <= said.get(name, 0) <= 10**15
        assert (burst > 0) == (length > 0)
        assert burst == 0 or 0 < said[name] <= burst <= 10**15 // length


@given(*(st.builds(DiskLimits, iops=st.sampled_from((0, 10, 50)), iops_max=st.sampled_from((0, 50, 90))) for _ in "ab"))
def test_of_two_limits_the_lower_one_holds_and_no_burst_is_above_either(one: DiskLimits, other: DiskLimits) -> None:
    held = lower(one, None, other)
    assert held == lower(other, one)
    given_limits = [limits for limits in (one, other) if limits.iops]
    if not given_limits:
        assert held is None
        return
    assert held is not None
    assert held.iops == min(limits.iops for limits in given_limits)
    most = min(limits.iops_max or limits.iops for limits in given_limits)
    assert (held.iops_max or held.iops) == most
    assert held.problem is None or any(limits.problem for limits in given_limits)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("bars", "mib"),
    [
        ([], 0),
        ([0], 0),
        ([256 << 20], 256),
        ([128 * GIB + (48 << 20)], 256 * 1024),
        ([128 * GIB + (48 << 20)] * 8, 2048 * 1024),
        ([64 * GIB] * 3, 256 * 1024),
        ([1 << 70], MAX_WINDOW_MIB),
    ],
)
def test_the_window_is_a_power_of_two_in_which_each_gpu_finds_an_aligned_place(bars: list[int], mib: int) -> None:
    assert window_for(bars) == mib


def test_a_function_of_a_network_card_is_as_golden_and_libvirt_takes_it(judge: libvirt.virConnect) -> None:
    nic = NicPlace(card="0000:05:00.0", function="0000:05:00.1", functions=8, mac="52:54:01:00:00:01")
    text = text_of(replace(vm(DEVICES["vendor_vfio"]), nic=nic)) + "\n"
    kept = kept_as_golden(text, DEFINITIONS / "network_function.xml", judge)
    assert read_domain_xml(kept).devices == ("0000:81:01.4", "0000:05:00.1")
    with pytest.raises(InvalidInput):
        text_of(replace(vm(DEVICES["vendor_vfio"]), nic=replace(nic, function="0000:81:01.4")))
    with pytest.raises(InvalidInput):
        text_of(replace(vm(DEVICES["vendor_vfio"]), nic=replace(nic, function="eth0")))


def test_the_chain_that_is_written_down_stays_in_the_definition_and_has_an_end(judge: libvirt.virConnect) -> None:
    domain = judge.defineXML(text_of(vm(DEVICES["mdev"]), IMAGES["mdev"]))
    try:
        kept = ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    finally:
        domain.undefine()
    beneath = kept.find("devices/disk/backingStore")
    assert beneath is not None
    assert [(part.tag, part.attrib) for part in beneath] == [
        ("format", {"type": "qcow2"}),
        ("source", {"file": f"/var/lib/vgpuctl-agent/images/{IMAGES['mdev']}"}),
        ("backingStore", {}),
    ]


@pytest.mark.parametrize(
    "image", ["", "x.qcow2", f"../{'a' * 64}.raw", f"{'a' * 64}", f"{'a' * 64}.vmdk", "/etc/shadow"]
)
def test_a_disk_lies_on_an_image_of_ours(image: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        text_of(vm(DEVICES["mdev"]), image)
    assert refused.value.code == "vm.domain_invalid"


def test_a_vm_takes_all_of_its_devices_in_their_order() -> None:
    both = replace(vm(DEVICES["mdev"]), devices=tuple(DEVICES.values()))
    hostdevs = ET.fromstring(text_of(both)).findall("devices/hostdev")
    assert [hostdev.get("type") for hostdev in hostdevs] == ["mdev", "pci", "mdev", "pci"]


def test_a_virtual_function_is_never_rebound_by_libvirt() -> None:
    hostdev = ET.fromstring(text_of(vm(DEVICES["vendor_vfio"]))).find("devices/hostdev")
    assert hostdev is not None
    assert hostdev.attrib == {"mode": "subsystem", "type": "pci", "managed": "no"}


@pytest.mark.fault("F129")
def test_a_guest_is_confined_and_cannot_spoof() -> None:
    root = ET.fromstring(text_of(vm(DEVICES["mdev"])))
    label, guard = root.find("seclabel"), root.find("devices/interface/filterref")
    assert label is not None
    assert guard is not None
    assert (label.get("type"), guard.get("filter")) == ("dynamic", GUARD)
    assert all(driver.get("type") in {"qcow2", "raw"} for driver in root.iterfind("devices/disk/driver"))


@pytest.mark.fault("F126")
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), st.uuids())
def test_no_text_becomes_syntax(text: str, vm_id: object) -> None:
    hostile = replace(vm(DEVICES["mdev"], replace(SPEC, profile=text)), id=str(vm_id))
    if not text.isprintable() or len(text) > 200:
        with pytest.raises(InvalidInput):
            text_of(hostile)
        return
    root = ET.fromstring(text_of(hostile))
    assert [child.tag for child in root] == [child.tag for child in ET.fromstring(text_of(vm(DEVICES["mdev"])))]
    said = root.find(f"metadata/{{{METADATA_NAMESPACE}}}vm")
    assert said is not None
    assert said.get("profile") == text


@given(st.uuids())
def test_a_mac_address_is_local_fixed_and_not_multicast(vm_id: object) -> None:
    address = mac_address(str(vm_id))
    assert address == mac_address(str(vm_id))
    first = int(address[:2], 16)
    assert (first & 1, first & 2) == (0, 2)


def test_libvirt_takes_the_network(judge: libvirt.virConnect) -> None:
    xml = network_xml("tenants", "10.88.1.0/24")
    judge.networkDefineXMLFlags(xml, libvirt.VIR_NETWORK_DEFINE_VALIDATE).undefine()
    assert 'address="10.88.1.1"' in xml
    assert 'start="10.88.1.2" end="10.88.1.254"' in xml


def test_a_network_of_a_tenant_has_a_dns_domain_that_nobody_else_is_asked_for(judge: libvirt.virConnect) -> None:
    xml = network_xml("red.blue", "10.88.1.0/24")
    judge.networkDefineXMLFlags(xml, libvirt.VIR_NETWORK_DEFINE_VALIDATE).undefine()
    domain = ET.fromstring(xml).find("domain")
    assert domain is not None
    assert domain.attrib == {"name": "blue.red.internal", "localOnly": "yes"}


def test_libvirt_takes_the_network_on_a_bridge_of_the_host(judge: libvirt.virConnect) -> None:
    xml = bridged_xml("office", "br0")
    judge.networkDefineXMLFlags(xml, libvirt.VIR_NETWORK_DEFINE_VALIDATE).undefine()
    assert ET.fromstring(xml).find("forward[@mode='bridge']") is not None
