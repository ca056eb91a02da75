# SPDX-License-Identifier: Apache-2.0
"""Two L40S for one VM as two vGPUs of full size, read back past the product; also after a hard reset of the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.lab.enrolled import VENDOR_VFIO, Enrolled, enrol_alone
from tests.lab.host_facts import facts, vgpu_count

pytestmark = pytest.mark.lab

BOTH = "l40s-2x48q"


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    kind = replace(VENDOR_VFIO, profile=BOTH, instances=1, gpus=2, smallest=True)
    with enrol_alone(kind, tmp_path_factory.mktemp("state")) as one:
        yield one


def seen_in_guest(enrolled: Enrolled, name: str) -> int:
    """How many NVIDIA devices its guest sees when it boots."""
    said = enrolled.guest_says(name).partition("00:00.0")[2]
    return said.partition("vgpu-guest ready")[0].count(enrolled.guest_pci_id)


def test_a_guest_sees_a_vgpu_of_each_gpu_also_after_a_hard_reset_and_the_host_is_as_before(enrolled: Enrolled) -> None:
    product, before = enrolled.product, facts(enrolled.shell)
    product.ok(*enrolled.request("train"))
    assert len({one["gpu"] for one in product.json("show-vm", "train")["devices"]}) == 2
    assert vgpu_count(enrolled.shell) == 2
    assert seen_in_guest(enrolled, "train") == 2
    assert enrolled.is_confined("train")
    product.refused(8, *enrolled.request_of("more", enrolled.other_size))
    made = facts(enrolled.shell)["vgpu_types"]

    enrolled.restored_after_a_hard_reset("train")
    assert facts(enrolled.shell)["vgpu_types"] == made
    assert seen_in_guest(enrolled, "train") == 2

    for verb in ("stop-vm", "start-vm", "delete-vm"):
        product.ok(verb, "train")
    assert facts(enrolled.shell) == before
