# SPDX-License-Identifier: Apache-2.0
"""Several vGPUs to a GPU instance of one RTX PRO 6000: made with the first, destroyed with the last; also after a hard
reset of the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.conftest import LabHost
from tests.lab.enrolled import SHARED_INSTANCES, Enrolled, enrol
from tests.lab.host_facts import facts, vgpu_count
from tests.lab.test_mig_backed import bare

pytestmark = pytest.mark.lab

_INSIDE = "grep -H '' /sys/bus/pci/devices/*/nvidia/gpu_instance_id 2>/dev/null || true"


@pytest.fixture(scope="module")
def enrolled(rtx_pro_6000: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    before = bare(rtx_pro_6000)
    with enrol(SHARED_INSTANCES, rtx_pro_6000, tmp_path_factory.mktemp("state")) as one:
        yield one
    assert bare(rtx_pro_6000) == before


def instances(enrolled: Enrolled) -> list[tuple[str, int]]:
    """Profile and first slot of each, as the host was last seen."""
    enrolled.product.ok("doctor")
    seen = enrolled.product.json("gpu", "show", enrolled.name, enrolled.gpu)["gpu_instances"]
    return [(one["profile"], one["start"]) for one in seen]


def inside(enrolled: Enrolled) -> dict[str, str]:
    """VM → id of the GPU instance that the driver says its vGPU lies in."""
    rows = [line.split("/nvidia/gpu_instance_id:") for line in enrolled.shell(_INSIDE).split("\n") if line]
    there = {where.rpartition("/")[2]: number.strip() for where, number in rows}
    shown = [enrolled.product.json("show-vm", str(vm["name"])) for vm in enrolled.product.json("list-vms")]
    return {vm["name"]: there[one["parent"]] for vm in shown if vm["state"] == "running" for one in vm["devices"]}


def test_vms_share_an_instance_that_is_made_with_the_first_and_destroyed_with_the_last(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("one"))
    assert enrolled.guest_pci_id in enrolled.guest_says("one")
    assert enrolled.is_confined("one")
    process, alone = enrolled.running_since("one"), instances(enrolled)
    assert alone == [("1g.24gb+gfx", 0)]
    for name in ("two", "three", "four"):
        product.ok(*enrolled.request(name))
    product.ok(*enrolled.request_of("wide", enrolled.other_size))
    there = inside(enrolled)
    assert there["one"] == there["two"] == there["three"] != there["four"]
    assert len(set(there.values())) == 3
    assert [start for _, start in instances(enrolled)] == [0, 3, 6]
    assert vgpu_count(enrolled.shell) == 5

    product.ok("delete-vm", "two")
    product.ok("delete-vm", "wide")
    product.ok(*enrolled.request("again"))
    assert inside(enrolled)["again"] == there["one"]
    for name in ("again", "three", "four"):
        product.ok("delete-vm", name)
    assert instances(enrolled) == alone
    assert enrolled.running_since("one") == process
    enrolled.clear()
    assert instances(enrolled) == []


@pytest.mark.fault("F76")
def test_after_a_hard_reset_the_same_vgpus_share_the_same_instances_with_no_controller(enrolled: Enrolled) -> None:
    product = enrolled.product
    asked = dict.fromkeys(("one", "two", "three", "four"), enrolled.profile) | {"wide": enrolled.other_size}
    for name, profile in asked.items():
        product.ok(*enrolled.request_of(name, profile))
    before, cut, lies = facts(enrolled.shell), instances(enrolled), enrolled.shell(_INSIDE)
    enrolled.restored_after_a_hard_reset(*asked)
    assert (facts(enrolled.shell), enrolled.shell(_INSIDE)) == (before, lies)
    assert instances(enrolled) == cut
    there = inside(enrolled)
    assert there["one"] == there["two"] == there["three"]
    assert len(set(there.values())) == 3
    assert product.json("doctor") == []
    product.ok("delete-vm", "one")
    product.ok("delete-vm", "two")
    assert inside(enrolled)["three"] == there["three"]
    enrolled.clear()
    assert instances(enrolled) == []
