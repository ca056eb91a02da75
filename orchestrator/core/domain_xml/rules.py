# SPDX-License-Identifier: Apache-2.0
"""Which values the fields of a domain may have. Whoever sends them: the host asks before it writes XML of them."""

from __future__ import annotations

import re

from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.pci import is_pci_address
from orchestrator.core.hosts.cpus import MAX_CPU, CpuPlace
from orchestrator.core.hosts.domain import DomainDescription
from orchestrator.core.names import is_name, is_uuid
from orchestrator.core.offerings.offering import PAGE_KIB
from orchestrator.core.vms.network import MAX_CARDS, short_name, tenant_of
from orchestrator.core.vms.vm import MAX_MEMORY_MIB, MAX_VCPUS, MIN_MEMORY_MIB

_MAX_DEVICES = 64
_MAX_DATA = 20
_MAX_TEXT = 200
_SHOWN = 60
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}", re.ASCII)
_IMAGE = re.compile(r"[0-9a-f]{64}\.(qcow2|raw)", re.ASCII)


def check_domain(vm: str, domain: DomainDescription) -> None:
    """That no field can mean anything but what it is for. Whose the things are that it names, its host knows.

    :raises InvalidInput: ``vm.domain_invalid``
    """
    tenant, _, name = domain.name.partition(".")
    rules = (
        ("vm", vm, is_uuid(vm)),
        ("name", domain.name, is_name(tenant) and is_name(name)),
        ("tenant", domain.tenant, domain.tenant == tenant),
        ("profile", domain.profile, _is_line(domain.profile)),
        ("vcpus", domain.vcpus, 1 <= domain.vcpus <= MAX_VCPUS),
        ("memory_mib", domain.memory_mib, MIN_MEMORY_MIB <= domain.memory_mib <= MAX_MEMORY_MIB),
        ("volume", domain.volume, _FILE_NAME.fullmatch(domain.volume) is not None),
        ("seed", domain.seed, _FILE_NAME.fullmatch(domain.seed) is not None),
        ("network", domain.network, _is_network_of(tenant, domain.network)),
        ("networks", domain.more_networks, all(_is_network_of(tenant, one) for one in domain.more_networks)),
        ("networks", "one twice", domain.network not in domain.more_networks),
        ("networks", "one twice", len(set(domain.more_networks)) == len(domain.more_networks) < MAX_CARDS),
        ("devices", len(domain.devices), len(domain.devices) <= _MAX_DEVICES),
        ("data", len(domain.data), len(set(domain.data)) == len(domain.data) <= _MAX_DATA),
        ("data", domain.data, all(_FILE_NAME.fullmatch(one) for one in domain.data)),
        ("cpus", domain.cpus, domain.cpus is None or _is_cpu_place(domain.cpus, domain.vcpus)),
        ("huge pages", domain.cpus, domain.cpus is None or _is_of_pages(domain.cpus, domain.memory_mib)),
        ("firmware", domain.firmware, domain.firmware in {"bios", "uefi"}),
        ("devices", "one twice", len({one.name for one in domain.devices}) == len(domain.devices)),
        ("network card's function", domain.nic, domain.nic is None or is_pci_address(domain.nic)),
        ("devices", "one twice", domain.nic not in {one.name for one in domain.devices}),
    )
    for field, value, holds in rules:
        if not holds:
            raise _invalid(field, value)
    for device in domain.devices:
        _check_device(device)


def check_image(image: str | None) -> None:
    """That a disk lies on an image of ours, or is not there yet.

    :raises InvalidInput: ``vm.domain_invalid``
    """
    if image is not None and _IMAGE.fullmatch(image) is None:
        raise _invalid("image", image)


def _check_device(device: Device) -> None:
    for field, address in (("gpu", device.gpu), ("parent", device.parent)):
        if not is_pci_address(address):
            raise _invalid(f"device's {field}", address)
    if device.name != device.parent and not is_uuid(device.name):
        raise _invalid("device's name", device.name)
    for field, text in (("type_name", device.type_name), ("gi_profile", device.gi_profile or "-")):
        if not _is_line(text):
            raise _invalid(f"device's {field}", text)


def _is_cpu_place(place: CpuPlace, vcpus: int) -> bool:
    """Each CPU once, and one for each vCPU or for none; memory is of nodes, or of any."""
    cpus = (*place.shared, *place.pinned)
    return (
        len(set(cpus)) == len(cpus)
        and all(0 <= number <= MAX_CPU for number in (*cpus, *place.nodes))
        and len(place.shared) > 0
        and len(place.pinned) in {0, vcpus}
        and 1 <= place.threads <= max(1, len(place.pinned))
        and vcpus % place.threads == 0
        and len(set(place.nodes)) == len(place.nodes)
        and (place.memory == "any") == (not place.nodes)
        and (place.memory != "preferred" or len(place.nodes) == 1)
    )


def _is_of_pages(place: CpuPlace, memory_mib: int) -> bool:
    """Ordinary ones, or whole huge pages of the nodes that are named."""
    if place.page_kib == 0:
        return place.page_mib == ()
    return (
        place.page_kib in PAGE_KIB.values()
        and place.memory == "strict"
        and memory_mib * 1024 % place.page_kib == 0
        and len(place.page_mib) == len(place.nodes)
        and sum(place.page_mib) == memory_mib
    )


def _is_network_of(tenant: str, network: str) -> bool:
    """The tenant's own, or one of the site."""
    return is_name(short_name(network)) and tenant_of(network) in {None, tenant}


def _is_line(text: str) -> bool:
    """Short, and every character can be seen: also what XML cannot hold is none."""
    return 0 < len(text) <= _MAX_TEXT and text.isprintable()


def _invalid(field: str, value: object) -> InvalidInput:
    return InvalidInput(
        "vm.domain_invalid",
        f"a VM's domain cannot have the {field} {ascii(value)[:_SHOWN]}",
        hint="the controller sends names of its own making: is this one of ours?",
    )
