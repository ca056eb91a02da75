# SPDX-License-Identifier: Apache-2.0
"""A half, a quarter and two eighths of one L40S, read back past the product; also after a hard reset of the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.lab.enrolled import VENDOR_VFIO, Enrolled, enrol_alone
from tests.lab.host_facts import facts, vgpu_count

pytestmark = pytest.mark.lab

HALF, QUARTER, EIGHTH = (f"l40s-{size}q-mixed" for size in (24, 12, 6))
OFFERINGS = f"""\
schema_version: 1
offerings:
  - name: {EIGHTH}
    kind: time_sliced
    vgpu_type: NVIDIA L40S-6Q
    mixed_sizes: true
"""
SIZES = {"half": 24, "quarter": 12, "eighth": 6, "other": 6, "third": 6, "fourth": 6}


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    kind = replace(VENDOR_VFIO, profile=EIGHTH, instances=4, smallest=True)
    with enrol_alone(kind, tmp_path_factory.mktemp("state"), OFFERINGS) as one:
        yield one


def mixes(enrolled: Enrolled) -> bool:
    """As the driver has it."""
    state = enrolled.shell(f"cat $(grep -l '^bdf {enrolled.gpu}$' /sys/kernel/vgpu_lab/gpus/*/state)")
    return "heterogeneous 1" in state.splitlines()


def places(enrolled: Enrolled) -> list[int]:
    """Of all vGPUs, as the driver has them."""
    files = f"/sys/bus/pci/devices/{enrolled.gpu}/virtfn*/nvidia/placement_id"
    return sorted(int(one) for one in enrolled.shell(f"cat {files} 2>/dev/null || true").split())


def mapped(enrolled: Enrolled) -> dict[str, int]:
    """VM → where it begins, as the map draws it."""
    enrolled.product.ok("doctor")
    rows = enrolled.product.json("gpu", "map")
    gpu = next(row for row in rows if row["gpu"] == enrolled.gpu)
    return {str(one["vm"]): int(one["start"]) for one in gpu["cells"] if one["vm"]}


def check_places(enrolled: Enrolled) -> None:
    drawn = mapped(enrolled)
    assert sorted(drawn.values()) == places(enrolled)
    slots = [slot for name, start in drawn.items() for slot in range(start, start + SIZES[name])]
    assert len(set(slots)) == len(slots)


def test_sizes_share_a_gpu_and_another_one_takes_the_place_of_one_that_leaves(enrolled: Enrolled) -> None:
    product, before = enrolled.product, facts(enrolled.shell)
    assert not mixes(enrolled)
    asked = {"half": HALF, "quarter": QUARTER, "eighth": EIGHTH, "other": EIGHTH}
    for name, profile in asked.items():
        product.ok(*enrolled.request_of(name, profile))
    assert mixes(enrolled)
    assert vgpu_count(enrolled.shell) == 4
    check_places(enrolled)
    assert enrolled.guest_pci_id in enrolled.guest_says("half")
    product.refused(8, *enrolled.request_of("more", EIGHTH))

    process = enrolled.running_since("half")
    freed = mapped(enrolled)["quarter"]
    product.ok("delete-vm", "quarter")
    for name in ("third", "fourth"):
        product.ok(*enrolled.request_of(name, EIGHTH))
    check_places(enrolled)
    now = mapped(enrolled)
    assert {now["third"], now["fourth"]} == {freed, freed + 6}
    assert enrolled.running_since("half") == process
    for name in ("third", "fourth", "eighth", "other"):
        product.ok("delete-vm", name)
    assert mixes(enrolled)
    product.ok("delete-vm", "half")
    assert not mixes(enrolled)
    assert facts(enrolled.shell) == before


def test_after_a_hard_reset_the_same_vgpus_lie_at_the_same_places_with_no_controller(enrolled: Enrolled) -> None:
    for name, profile in (("half", HALF), ("quarter", QUARTER)):
        enrolled.product.ok(*enrolled.request_of(name, profile))
    before = places(enrolled)
    enrolled.restored_after_a_hard_reset("half", "quarter")
    assert mixes(enrolled)
    assert places(enrolled) == before
    check_places(enrolled)
    enrolled.clear()
    assert not mixes(enrolled)
