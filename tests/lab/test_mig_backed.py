# SPDX-License-Identifier: Apache-2.0
"""VMs in GPU instances of one A100: made and taken away beside each other, cut anew by the next request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.conftest import LabHost
from tests.lab.enrolled import MIG_BACKED, Enrolled, enrol
from tests.lab.host_facts import facts, vgpu_count

pytestmark = pytest.mark.lab

_MODES = "nvidia-smi --query-gpu=pci.bus_id,mig.mode.current,mig.mode.pending --format=csv,noheader"
_CAPABILITIES = "cd /proc/driver/nvidia/capabilities && find . -name access | sort"


@pytest.fixture(scope="module")
def enrolled(a100: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    before = bare(a100)
    with enrol(MIG_BACKED, a100, tmp_path_factory.mktemp("state")) as one:
        yield one
    assert bare(a100) == before


def bare(host: LabHost) -> tuple[str, str, str]:
    """What the host's GPUs have without us: modes, GPU instances, virtual functions."""
    functions = host.run("cat /sys/bus/pci/devices/*/sriov_numvfs 2>/dev/null || true")
    return host.run(_MODES), host.run(_CAPABILITIES), functions


def instances(enrolled: Enrolled) -> dict[str, tuple[str, int]]:
    """VM → profile and first slot of its GPU instance, as the host was last seen."""
    enrolled.product.ok("doctor")
    seen = enrolled.product.json("gpu", "show", enrolled.name, enrolled.gpu)["gpu_instances"]
    return {one["vm"].partition("/")[2]: (one["profile"], one["start"]) for one in seen}


def test_a_vm_in_a_gpu_instance_comes_and_goes_beside_another_that_runs_on(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("sibling"))
    assert enrolled.guest_pci_id in enrolled.guest_says("sibling")
    assert enrolled.is_confined("sibling")
    process, before = enrolled.running_since("sibling"), facts(enrolled.shell)
    alone = instances(enrolled)

    product.ok(*enrolled.request("train"))
    assert enrolled.guest_pci_id in enrolled.guest_says("train")
    assert vgpu_count(enrolled.shell) == 2
    assert set(instances(enrolled)) == {"sibling", "train"}
    product.ok("stop-vm", "train")
    assert instances(enrolled) == alone
    product.ok("start-vm", "train")
    assert set(instances(enrolled)) == {"sibling", "train"}
    product.ok("delete-vm", "train")
    assert (instances(enrolled), facts(enrolled.shell)) == (alone, before)
    assert enrolled.running_since("sibling") == process
    product.ok("delete-vm", "sibling")
    assert "gi" not in enrolled.shell(_CAPABILITIES)


def test_four_share_a_gpu_and_two_smaller_ones_take_the_place_of_one(enrolled: Enrolled) -> None:
    product = enrolled.product
    for number in range(4):
        product.ok(*enrolled.request(f"quarter-{number}"))
    refused = product.refused(8, *enrolled.request("fifth", "--no-start"))
    assert "no GPU has room" in refused.err
    there = instances(enrolled)
    kept, leaves = there["quarter-0"], there["quarter-1"]
    processes = {number: enrolled.running_since(f"quarter-{number}") for number in (0, 2, 3)}
    product.ok("delete-vm", "quarter-1")
    for name in ("left", "right"):
        product.ok(*enrolled.request_of(name, enrolled.other_size))
    found = instances(enrolled)
    assert found["quarter-0"] == kept
    assert sorted(found[name] for name in ("left", "right")) == [("1g.10gb", leaves[1]), ("1g.10gb", leaves[1] + 1)]
    assert {number: enrolled.running_since(f"quarter-{number}") for number in processes} == processes
    enrolled.clear()
