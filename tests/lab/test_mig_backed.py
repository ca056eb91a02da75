# SPDX-License-Identifier: Apache-2.0
"""VMs in GPU instances of one A100: made and taken away beside each other, cut anew by the next request."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab.conftest import LabHost
from tests.lab.enrolled import MIG_BACKED, SMALL, Enrolled, enrol
from tests.lab.host_facts import facts, vgpu_count

pytestmark = pytest.mark.lab

_TWO_BOOT_S = 900
"""An emulated host has one processor, and a guest that runs has some of it."""
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


def running_since(enrolled: Enrolled, name: str) -> str:
    """The process of a VM's QEMU, which a restart would change."""
    vm = enrolled.product.json("show-vm", name)["id"]
    return enrolled.shell(f"pgrep -f {vm}").split()[0]


def test_a_vm_in_a_gpu_instance_comes_and_goes_beside_another_that_runs_on(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("sibling", "--ssh-key", enrolled.public_key))
    process, before = running_since(enrolled, "sibling"), facts(enrolled.shell)
    alone = instances(enrolled)
    guest = product.ok("ssh", "sibling", "--", "lspci", "-nn").out
    assert enrolled.guest_pci_id in guest

    product.ok(*enrolled.request("train"), limit_s=_TWO_BOOT_S)
    assert vgpu_count(enrolled.shell) == 2
    assert set(instances(enrolled)) == {"sibling", "train"}
    product.ok("stop-vm", "train")
    assert instances(enrolled) == alone
    product.ok("start-vm", "train", limit_s=_TWO_BOOT_S)
    assert set(instances(enrolled)) == {"sibling", "train"}
    product.ok("delete-vm", "train")
    assert (instances(enrolled), facts(enrolled.shell)) == (alone, before)
    assert running_since(enrolled, "sibling") == process
    product.ok("delete-vm", "sibling")
    assert "gi" not in enrolled.shell(_CAPABILITIES)


def test_four_share_a_gpu_and_two_smaller_ones_take_the_place_of_one(enrolled: Enrolled) -> None:
    product = enrolled.product
    for number in range(4):
        options = () if number in {0, 1} else ("--no-start",)
        product.ok(*enrolled.request(f"quarter-{number}", *options), limit_s=_TWO_BOOT_S)
    refused = product.refused(8, *enrolled.request("fifth", "--no-start"))
    assert "no GPU has room" in refused.err
    kept, leaves = _places(enrolled, "quarter-0"), _places(enrolled, "quarter-1")
    process = running_since(enrolled, "quarter-0")
    product.ok("delete-vm", "quarter-1")
    for name in ("left", "right"):
        product.ok("create-vm", name, "--profile", enrolled.other_size, "--image", "guest", *SMALL, limit_s=_TWO_BOOT_S)
    found = instances(enrolled)
    assert found["quarter-0"] == kept
    assert sorted(found[name] for name in ("left", "right")) == [("1g.10gb", leaves[1]), ("1g.10gb", leaves[1] + 1)]
    assert running_since(enrolled, "quarter-0") == process
    for vm in json.loads(product.ok("list-vms", "-o", "json").out):
        product.ok("delete-vm", vm["name"])


def _places(enrolled: Enrolled, name: str) -> tuple[str, int]:
    return instances(enrolled)[name]
