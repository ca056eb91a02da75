# SPDX-License-Identifier: Apache-2.0
"""Two VMs with half an L40S each under fixed share, read back past the product; also after a hard reset of the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.lab.enrolled import VENDOR_VFIO, Enrolled, enrol_alone
from tests.lab.host_facts import facts, vgpu_count

pytestmark = pytest.mark.lab

HALF = "half-and-half"
OFFERINGS = f"""\
schema_version: 1
offerings:
  - name: {HALF}
    kind: time_sliced
    vgpu_type: NVIDIA L40S-24Q
    scheduler:
      policy: fixed_share
      time_slice_ms: 4
"""
FIXED = "3 1 0 0 4000000"
"""Policy, adaptive round robin off, its factor and frequency, the slice in ns: as the lab's driver keeps them."""


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    kind = replace(VENDOR_VFIO, profile=HALF, instances=2, smallest=True)
    with enrol_alone(kind, tmp_path_factory.mktemp("state"), OFFERINGS) as one:
        yield one


def scheduler(enrolled: Enrolled) -> str:
    """As the driver has it; nothing but zeroes: nobody has chosen."""
    state = enrolled.shell(f"cat $(grep -l '^bdf {enrolled.gpu}$' /sys/kernel/vgpu_lab/gpus/*/state)")
    return next(line.partition(" ")[2] for line in state.splitlines() if line.startswith("scheduler "))


def shown(enrolled: Enrolled) -> dict[str, object]:
    enrolled.product.ok("doctor")
    found: dict[str, object] = enrolled.product.json("gpu", "show", enrolled.name, enrolled.gpu)["scheduler"]
    return found


def test_two_vms_have_half_a_gpu_each_whatever_the_other_does(enrolled: Enrolled) -> None:
    product, before = enrolled.product, facts(enrolled.shell)
    assert shown(enrolled)["policy"] == "best_effort"
    for name in ("one", "two"):
        product.ok(*enrolled.request(name))
    assert scheduler(enrolled) == FIXED
    assert shown(enrolled) == {"policy": "fixed_share", "time_slice_us": 4000, "share_percent": 50.0}
    assert vgpu_count(enrolled.shell) == 2
    assert enrolled.guest_pci_id in enrolled.guest_says("one")

    product.ok("delete-vm", "two")
    process = enrolled.running_since("one")
    refused = product.refused(8, *enrolled.request_of("other", "NVIDIA L40S-24Q"))
    assert "divided otherwise" in refused.err
    assert scheduler(enrolled) == FIXED
    assert enrolled.running_since("one") == process
    product.ok("delete-vm", "one")
    assert scheduler(enrolled) != FIXED
    assert shown(enrolled)["policy"] == "best_effort"
    product.ok(*enrolled.request_of("other", "NVIDIA L40S-24Q"))
    product.ok("delete-vm", "other")
    assert facts(enrolled.shell) == before


def test_after_a_hard_reset_the_gpu_divides_its_time_so_before_its_vm_runs_with_no_controller(
    enrolled: Enrolled,
) -> None:
    enrolled.product.ok(*enrolled.request("one"))
    enrolled.restored_after_a_hard_reset("one")
    assert scheduler(enrolled) == FIXED
    enrolled.clear()
    assert scheduler(enrolled) != FIXED
