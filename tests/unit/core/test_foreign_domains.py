# SPDX-License-Identifier: Apache-2.0
"""What no VM may have, in definitions as other programs write them; each is one by libvirt's own schema."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from orchestrator.core.domain_xml.foreign import managed_by, unsafe_parts
from tests.unit.core.relaxng import is_valid

HERE = Path(__file__).parent
OF_THE_DOMAIN = [
    ("<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>", "memoryBacking of type file"),
    ("<sysinfo type='fwcfg'><entry name='opt/a' file='/etc/shadow'/></sysinfo>", "sysinfo with a file of the host"),
    (
        "<cputune><vcpusched vcpus='0-3' scheduler='fifo' priority='99'/></cputune>",
        "cputune with a real-time scheduler",
    ),
    ("<cputune><emulatorsched scheduler='rr' priority='1'/></cputune>", "cputune with a real-time scheduler"),
]
LOADERS = [
    ("<loader readonly='no' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>", ("os/loader that is not readonly",)),
    ("<loader readonly='yes' secure='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>", ()),
    ("<loader type='rom'>/usr/share/seabios/bios.bin</loader>", ()),
]
ORDINARY = (
    "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking><iothreads>2</iothreads>"
    "<cputune><shares>2048</shares><vcpupin vcpu='0' cpuset='4'/></cputune>"
)


def definition(devices: str = "", more: str = "", firmware: str = "") -> ET.Element:
    text = (
        f"<domain type='kvm'><name>a</name><memory unit='KiB'>8388608</memory><vcpu>4</vcpu>{more}"
        f"<os><type arch='x86_64' machine='q35'>hvm</type>{firmware}</os><devices>{devices}</devices></domain>"
    )
    assert is_valid("domain.rng", text), text
    return ET.fromstring(text)


@pytest.mark.parametrize("one", ET.parse(HERE / "foreign_devices.xml").findall("of"), ids=lambda one: one.get("told"))
def test_a_device_that_reaches_past_its_domain_is_told_by_name(one: ET.Element) -> None:
    devices = "".join(ET.tostring(device, encoding="unicode") for device in one)
    assert unsafe_parts(definition(devices)) == (one.get("told"),)


def test_a_device_that_only_newer_libvirts_have_is_told_as_well() -> None:
    disk = "<disk type='vhostvdpa' device='disk'><source dev='/dev/vhost-vdpa-0'/></disk>"
    assert unsafe_parts(ET.fromstring(f"<domain><devices>{disk}</devices></domain>")) == ("disk of type vhostvdpa",)


@pytest.mark.parametrize(("parts", "told"), OF_THE_DOMAIN)
def test_what_reaches_past_its_domain_is_told_by_name(parts: str, told: str) -> None:
    assert unsafe_parts(definition(more=parts)) == (told,)


@pytest.mark.parametrize(("loader", "told"), LOADERS)
def test_firmware_that_a_guest_could_write_is_told_by_name(loader: str, told: tuple[str, ...]) -> None:
    assert unsafe_parts(definition(firmware=loader)) == told


def test_what_desktops_and_terraform_give_every_domain_is_nothing_to_tell() -> None:
    devices = "".join(ET.tostring(one, encoding="unicode") for one in ET.parse(HERE / "ordinary_devices.xml").getroot())
    assert unsafe_parts(definition(devices, ORDINARY)) == ()


def test_what_a_guest_is_told_of_another_cloud_names_no_controller() -> None:
    strings = "<oemStrings><entry>seed: https://openstack.example.org/meta</entry></oemStrings>"
    assert managed_by(definition(more=f"<sysinfo type='smbios'>{strings}</sysinfo>")) == ""
