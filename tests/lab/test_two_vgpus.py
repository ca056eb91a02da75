# SPDX-License-Identifier: Apache-2.0
"""Two L40S for one VM as two vGPUs of full size, read back past the product; also after a hard reset of the host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.lab.conftest import LabHost, lab, of_scenario
from tests.lab.enrolled import VENDOR_VFIO, Enrolled, enrol
from tests.lab.host_facts import facts, vgpu_count

pytestmark = pytest.mark.lab

BOTH = "l40s-2x48q"
RESTORED_S = 400


@pytest.fixture(scope="module")
def l40s_two() -> Iterator[LabHost]:
    yield from of_scenario("l40s")


@pytest.fixture(scope="module")
def enrolled(l40s_two: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    kind = replace(VENDOR_VFIO, profile=BOTH, instances=1, gpus=2, smallest=True)
    with enrol(kind, l40s_two, tmp_path_factory.mktemp("state")) as one:
        yield one


def seen_in_guest(enrolled: Enrolled, name: str) -> int:
    """How many NVIDIA devices its guest sees when it boots."""
    said = enrolled.guest_says(name).partition("00:00.0")[2]
    return said.partition("vgpu-guest ready")[0].count(enrolled.guest_pci_id)


def test_a_guest_sees_a_vgpu_of_each_gpu_also_after_a_hard_reset_and_the_host_is_as_before(enrolled: Enrolled) -> None:
    product, before = enrolled.product, facts(enrolled.shell)
    product.ok(*enrolled.request("train"))
    vm = product.json("show-vm", "train")
    assert len({one["gpu"] for one in vm["devices"]}) == 2
    assert vgpu_count(enrolled.shell) == 2
    assert seen_in_guest(enrolled, "train") == 2
    assert enrolled.is_confined("train")
    product.refused(8, *enrolled.request_of("more", enrolled.other_size))
    made = facts(enrolled.shell)["vgpu_types"]

    product.ok("server", "stop")
    lab("reboot", enrolled.name)
    deadline = time.monotonic() + RESTORED_S
    while str(vm["id"]) not in enrolled.shell("virsh -q list --uuid"):
        assert time.monotonic() < deadline, enrolled.shell("journalctl -u vgpuctl-agent -b --no-pager | tail")
        time.sleep(3)
    assert facts(enrolled.shell)["vgpu_types"] == made
    assert seen_in_guest(enrolled, "train") == 2

    for verb in ("stop-vm", "start-vm", "delete-vm"):
        product.ok(verb, "train")
    assert facts(enrolled.shell) == before
