# SPDX-License-Identifier: Apache-2.0
"""Memory of the GPU's NUMA node, and memory of huge pages, by a host's own libvirt and QEMU; after a hard reset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tests.lab.enrolled import MDEV, Enrolled, enrol_alone

pytestmark = pytest.mark.lab

PAGES = 48
"""Of 2 MiB; a guest of 64 MiB takes 32."""
OFFERINGS = """\
schema_version: 1
offerings:
  - {name: near, kind: time_sliced, vgpu_type: GRID T4-1Q, numa: strict}
  - {name: huge, kind: time_sliced, vgpu_type: GRID T4-1Q, numa: strict, hugepages: 2M}
"""


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    kind = replace(MDEV, profile="near", smallest=True)
    with enrol_alone(kind, tmp_path_factory.mktemp("state"), OFFERINGS) as one:
        yield one


def memory_of(enrolled: Enrolled, vm: str) -> tuple[str, str, str]:
    """Policy, nodes and KiB of a huge page of the domain that runs."""
    root = ET.fromstring(enrolled.shell(f"virsh dumpxml {vm}"))
    memory, page = root.find("numatune/memory"), root.find("memoryBacking/hugepages/page")
    assert memory is not None
    return memory.get("mode", ""), memory.get("nodeset", ""), "" if page is None else page.get("size", "")


def free_pages(enrolled: Enrolled) -> int:
    return int(enrolled.shell("cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"))


def check_memory(enrolled: Enrolled, vms: dict[str, str]) -> None:
    assert memory_of(enrolled, vms["near"]) == ("strict", "0", "")
    assert memory_of(enrolled, vms["huge"]) == ("strict", "0", "2048")
    assert free_pages(enrolled) == PAGES - 32


def test_memory_is_where_and_what_was_asked_for_also_after_a_hard_reset_with_no_controller(enrolled: Enrolled) -> None:
    product = enrolled.product
    assert "host.no_hugepages" in product.refused(8, *enrolled.request_of("huge", "huge")).err
    enrolled.shell(f"echo vm.nr_hugepages={PAGES} > /etc/sysctl.d/huge.conf && sysctl -qp /etc/sysctl.d/huge.conf")
    product.ok("doctor")
    for name in ("near", "huge"):
        product.ok(*enrolled.request_of(name, name))
    vms = {name: str(product.json("show-vm", name)["id"]) for name in ("near", "huge")}
    check_memory(enrolled, vms)
    assert enrolled.guest_pci_id in enrolled.guest_says("huge")
    assert enrolled.is_confined("huge")
    assert "host.hugepages" in product.refused(8, *enrolled.request_of("more", "huge")).err

    enrolled.restored_after_a_hard_reset("near", "huge")
    check_memory(enrolled, vms)
    assert product.json("doctor") == []
    enrolled.clear()
    assert free_pages(enrolled) == PAGES
