# SPDX-License-Identifier: Apache-2.0
"""Fabric partitions of an HGX baseboard: four of its eight GPUs for one tenant, the others sold as one, one and two;
also after a hard reset of the host."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab.conftest import LabHost
from tests.lab.enrolled import HGX, Enrolled, enrol
from tests.lab.host_facts import facts

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def enrolled(h100_hgx: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    with enrol(HGX, h100_hgx, tmp_path_factory.mktemp("state")) as one:
        yield one


def modules(enrolled: Enrolled) -> dict[str, int]:
    """PCI address → module id, while the host's driver has all GPUs."""
    rows = enrolled.shell("nvidia-smi --query-gpu=pci.bus_id,module_id --format=csv,noheader").strip().splitlines()
    return {bus_id[4:].lower(): int(module) for bus_id, module in (row.split(", ") for row in rows)}


def active(enrolled: Enrolled) -> set[frozenset[int]]:
    """Module ids of the partitions that the host's fabric manager has active."""
    told = json.loads(enrolled.shell("fmpm -l"))["partitionInfo"]
    return {frozenset(gpu["physicalId"] for gpu in one["gpuInfo"]) for one in told if one["isActive"]}


def given(enrolled: Enrolled, name: str, by_address: dict[str, int]) -> frozenset[int]:
    """Module ids of a VM's GPUs."""
    return frozenset(by_address[one["gpu"]] for one in enrolled.product.json("show-vm", name)["devices"])


def test_four_gpus_are_one_tenants_partition_and_the_others_are_sold_as_one_one_and_two(enrolled: Enrolled) -> None:
    product, by_address, before = enrolled.product, modules(enrolled), facts(enrolled.shell)
    sizes = {"four": 4, "one": 1, "other": 1, "pair": 2}
    for name, count in sizes.items():
        product.ok(*enrolled.request_of(name, f"gpu:{count}"))
    sets = {name: given(enrolled, name, by_address) for name in sizes}
    assert {name: len(one) for name, one in sets.items()} == sizes
    assert len(frozenset().union(*sets.values())) == 8
    assert active(enrolled) == set(sets.values())
    assert enrolled.guest_says("four").count(enrolled.guest_pci_id) == 4
    assert "gpu.too_few" in product.refused(8, *enrolled.request("ninth", "--no-start")).err

    process = enrolled.running_since("pair")
    product.ok("stop-vm", "four")
    assert active(enrolled) == {one for name, one in sets.items() if name != "four"}
    product.ok("start-vm", "four")
    product.ok("delete-vm", "four")
    assert active(enrolled) == {one for name, one in sets.items() if name != "four"}
    assert enrolled.running_since("pair") == process
    enrolled.clear()
    assert active(enrolled) == set()
    assert facts(enrolled.shell) == before


def test_after_a_hard_reset_the_same_partitions_are_active_with_no_controller(enrolled: Enrolled) -> None:
    product, by_address = enrolled.product, modules(enrolled)
    sizes = {"four": 4, "pair": 2}
    for name, count in sizes.items():
        product.ok(*enrolled.request_of(name, f"gpu:{count}"))
    product.ok(*enrolled.request("off", "--no-start"))
    before, sets = facts(enrolled.shell), {name: given(enrolled, name, by_address) for name in sizes}
    enrolled.restored_after_a_hard_reset(*sizes)
    assert active(enrolled) == set(sets.values())
    assert facts(enrolled.shell) == before
    assert product.json("doctor") == []
    assert enrolled.guest_says("pair").count(enrolled.guest_pci_id) == 2
    enrolled.clear()
    assert active(enrolled) == set()


def test_six_free_gpus_without_a_partition_of_four_are_refused_with_the_reason(enrolled: Enrolled) -> None:
    product = enrolled.product
    at = {module: address for address, module in modules(enrolled).items()}
    for name, module in (("left", 1), ("right", 5)):  # the baseboard has partitions of four of modules 1-4 and of 5-8
        product.ok(*enrolled.request(name, "--no-start", "--gpu", at[module]))
    refused = product.refused(8, *enrolled.request_of("four", "gpu:4", "--no-start"))
    assert "gpu.no_partition" in refused.err
    assert "6 GPUs are free, but they do not form a partition" in refused.err
    told = product.run("explain", "--profile", "gpu:4", "--vcpus", "1", "--memory", "64MiB", "-o", "json").json()
    assert told["reasons"][0]["code"] == "gpu.no_partition"
    enrolled.clear()
