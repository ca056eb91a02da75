# SPDX-License-Identifier: Apache-2.0
"""Whole GPUs of an NVSwitch baseboard: four of its eight for one tenant, the others sold as one, one and two. Each VM's
set is a fabric partition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.fabric_host import MODULES
from tests.lab.enrolled import HGX
from tests.scenarios.site import BOTH, LAB, Site, site_on

FLEET = """\
groups:
  - {name: hgx, count: 1, gpu_model: H100 SXM5 80GB, gpus_per_host: 8, vcpus: 192, memory_gib: 2048}
"""
B200_FLEET = FLEET.replace("H100 SXM5 80GB", "B200 SXM 180GB")
STOPPED = ("--no-start",)


@pytest.fixture(scope="module", params=BOTH)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(request.param, tmp_path_factory.mktemp("site"), HGX, FLEET) as one:
        yield one


@pytest.fixture
def site(opened: Site) -> Iterator[Site]:
    yield opened
    opened.clear()


def modules(site: Site) -> dict[str, int]:
    """PCI address → module id, which do not follow their order; while the host's driver has all GPUs."""
    if site.lab is None:
        return dict(zip(sorted(row["address"] for row in site.product.json("gpu", "list")), MODULES, strict=True))
    rows = site.lab.shell("nvidia-smi --query-gpu=pci.bus_id,module_id --format=csv,noheader").strip().splitlines()
    return {bus_id[4:].lower(): int(module) for bus_id, module in (row.split(", ") for row in rows)}


def active(site: Site) -> set[frozenset[int]]:
    """Module ids of the active partitions, which are all ours, as the host says it now; also past the product."""
    assert site.product.json("doctor") == []
    fabric = site.product.json("host", "show", site.name)["fabric"]
    there = [one for one in fabric["partitions"] if one["active"]]
    assert fabric["problem"] is None
    assert fabric["domain_id"], "also while VMs have its GPUs"
    assert all(one["ours"] for one in there)
    found = {frozenset(one["modules"]) for one in there}
    if site.lab is not None:
        told = json.loads(site.lab.shell("fmpm -l"))["partitionInfo"]
        assert found == {frozenset(gpu["physicalId"] for gpu in one["gpuInfo"]) for one in told if one["isActive"]}
    return found


def given(site: Site, by_address: dict[str, int], vm: str) -> frozenset[int]:
    """Module ids of its GPUs."""
    return frozenset(by_address[one["gpu"]] for one in site.product.json("show-vm", vm)["devices"])


def on_map(site: Site, by_address: dict[str, int]) -> dict[str, frozenset[int]]:
    """VM → module ids of the partition that the map says its GPUs are, all of which say the same one."""
    known = {one["id"]: one["modules"] for one in site.product.json("host", "show", site.name)["fabric"]["partitions"]}
    told: dict[str, set[int]] = {}
    for gpu in site.product.json("gpu", "map"):
        for cell in gpu["cells"]:
            told.setdefault(cell["vm"], set()).add(gpu["fabric_partition"])
            assert by_address[gpu["gpu"]] in known[gpu["fabric_partition"]]
    assert all(len(numbers) == 1 for numbers in told.values())
    return {vm: frozenset(known[number]) for vm, (number,) in told.items()}


def check_fits(site: Site, *expected: int) -> None:
    """How many more sets of 8, 4, 2 and 1 there are; a lab host has less of other things."""
    if site.lab is None:
        assert [site.fits(f"gpu:{count}") for count in (8, 4, 2, 1)] == [*expected]


def test_four_gpus_are_one_tenants_partition_and_the_others_are_sold_as_one_one_and_two(site: Site) -> None:
    by_address, before = modules(site), site.left()
    site.create("gpu:4", "four")
    check_fits(site, 0, 1, 2, 4)
    site.create("gpu:1", "one", "other")
    site.create("gpu:2", "pair")
    sets = {vm: given(site, by_address, vm) for vm in ("four", "one", "other", "pair")}
    assert [len(one) for one in sets.values()] == [4, 1, 1, 2]
    assert len(frozenset().union(*sets.values())) == 8
    assert active(site) == set(sets.values())
    assert on_map(site, by_address) == sets
    site.check_guest("four", 4)
    site.refused("gpu:1", "gpu.too_few")
    shown = " ".join(site.product.ok("host", "show", site.name).out.split())
    assert "partitions: 1 of 8, 2 of 4, 4 of 2, 8 of 1 GPUs" in shown
    assert "partition 1 is active (modules 1, 2, 3, 4)" in shown or "partition 2 is active" in shown

    since, others = site.running_since("pair"), {one for vm, one in sets.items() if vm != "four"}
    site.product.ok("stop-vm", "four")
    assert active(site) == others
    check_fits(site, 0, 0, 0, 0)
    site.product.ok("start-vm", "four")
    assert active(site) == set(sets.values())
    site.delete("four")
    assert active(site) == others
    assert site.running_since("pair") == since
    site.clear()
    assert active(site) == set()
    check_fits(site, 1, 2, 4, 8)
    assert site.left() == before


@pytest.mark.fault("F93")
def test_six_free_gpus_that_hold_no_partition_of_four_are_refused_by_all_who_are_asked(site: Site) -> None:
    at = {module: address for address, module in modules(site).items()}
    for vm, module in (("left", 1), ("right", 5)):  # partitions of four are of modules 1-4 and of 5-8
        site.create("gpu:1", vm, more=(*STOPPED, "--gpu", at[module]))
    said = site.refused("gpu:4", "gpu.no_partition")
    assert "6 GPUs are free, but they do not form a partition" in said
    assert site.name in said
    assert site.refused("gpu:4", "gpu.no_partition", "--dry-run")
    check_fits(site, 0, 0, 2, 6)
    site.create("gpu:2", "two", more=STOPPED)


@pytest.mark.parametrize("opened", [LAB], indirect=True)
def test_after_a_hard_reset_the_same_partitions_are_active_with_no_controller(site: Site) -> None:
    by_address = modules(site)
    site.create("gpu:4", "four")
    site.create("gpu:2", "pair")
    site.create("gpu:1", "off", more=STOPPED)
    before, sets = site.left(), {given(site, by_address, vm) for vm in ("four", "pair")}
    site.hard_reset("four", "pair")
    assert active(site) == sets
    assert site.left() == before
    site.check_guest("pair", 2)
    site.clear()
    assert active(site) == set()


def test_two_gpus_of_an_hgx_b200_are_one_of_that_boards_pairs(tmp_path: Path) -> None:
    with site_on("memory", tmp_path, HGX, B200_FLEET) as site:
        by_address = modules(site)
        for vm in ("one", "two", "three", "four"):
            site.create("gpu:2", vm)
        sets = {given(site, by_address, vm) for vm in ("one", "two", "three", "four")}
        assert sets == {frozenset({1, 2}), frozenset({3, 4}), frozenset({5, 6}), frozenset({7, 8})}
        assert active(site) == sets
