# SPDX-License-Identifier: Apache-2.0
"""A VM's device made with raw commands on its host, as an operator would type them."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.lab.enrolled import Enrolled

_SOURCE = Path(__file__).with_name("gpu_instance.c")
_PROGRAM = "/run/bench-gpu-instance"
_MDEV = re.compile(r"(<source>\s*<address uuid=')([0-9a-f-]{36})")
_PCI = re.compile(
    r"<hostdev mode='subsystem' type='pci'.*?<source>\s*<address domain='0x(.{4})' bus='0x(..)' slot='0x(..)' "
    r"function='0x(.)'",
    re.DOTALL,
)
_SLICES, _MIB = 1, 19 * 1024
"""1g.20gb."""


@dataclass(frozen=True)
class ByHand:
    """Shell lines, and the definition of the VM that has the device."""

    make: str
    remove: str
    xml: str


def prepare(enrolled: Enrolled) -> None:
    """What the commands below need on the host."""
    if enrolled.kind.attachment == "mig_backed":
        enrolled.host.send(_SOURCE, f"{_PROGRAM}.c")
        enrolled.shell(f"gcc -O1 -o {_PROGRAM} {_PROGRAM}.c -l:libnvidia-ml.so.1")


def device_by_hand(enrolled: Enrolled, xml: str) -> ByHand:
    """``xml``: of a VM that the product has made; a PCI device of it is taken again."""
    if enrolled.kind.attachment == "mdev":
        return _mdev(enrolled, xml)
    address = function_of(xml)
    if enrolled.kind.attachment == "passthrough":
        node = "pci_" + re.sub(r"\W", "_", address)
        return ByHand(f"virsh -q nodedev-detach {node}", f"virsh -q nodedev-reattach {node}", xml)
    typed, untyped = _type_on(enrolled, address)
    if enrolled.kind.attachment == "vendor_vfio":
        return ByHand(typed, untyped, xml)
    gpu = f"$(basename $(readlink -f /sys/bus/pci/devices/{address}/physfn))"
    instance = f"{gpu} {_SLICES} {_MIB}"
    make = f"{_PROGRAM} make {instance}\n/usr/lib/nvidia/sriov-manage -e {gpu} > /dev/null\n{typed}"
    return ByHand(make, f"{untyped}\n{_PROGRAM} remove {instance}", xml)


def _mdev(enrolled: Enrolled, xml: str) -> ByHand:
    name, gpu = str(uuid.uuid4()), f"/sys/bus/pci/devices/{enrolled.gpu}"
    types = f'd=$(dirname "$(grep -lx "{enrolled.profile}" {gpu}/mdev_supported_types/*/name)")'
    return ByHand(
        f'{types}; echo {name} > "$d/create"',
        f"echo 1 > /sys/bus/mdev/devices/{name}/remove",
        _MDEV.sub(rf"\g<1>{name}", xml),
    )


def _type_on(enrolled: Enrolled, function: str) -> tuple[str, str]:
    files = f"/sys/bus/pci/devices/{function}/nvidia"
    found = f"id=$(awk -F: '/{enrolled.profile}$/ {{print $1+0}}' {files}/creatable_vgpu_types)"
    return f"{found}; echo $id > {files}/current_vgpu_type", f"echo 0 > {files}/current_vgpu_type"


def function_of(xml: str) -> str:
    """The PCI function that the VM has."""
    found = _PCI.search(xml)
    assert found is not None, xml
    return "{}:{}:{}.{}".format(*found.groups())


def mdev_of(xml: str) -> str:
    """The UUID of the mediated device that the VM has."""
    found = _MDEV.search(xml)
    assert found is not None, xml
    return found[2]


def ready(enrolled: Enrolled, seed: str) -> tuple[str, str]:
    """A new VM's id, with its seed on the host, and the path of the base image."""
    name = str(uuid.uuid4())
    enrolled.shell(f"echo {seed} | base64 -d > /var/lib/vgpuctl-agent/seeds/{name}.iso")
    return name, enrolled.shell("ls /var/lib/vgpuctl-agent/images/*.qcow2").split()[0]
