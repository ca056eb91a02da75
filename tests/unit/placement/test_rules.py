# SPDX-License-Identifier: Apache-2.0
"""What holds for every rule of placement, whatever it is about."""

from __future__ import annotations

from pathlib import Path

import orchestrator.core.placement.rules
from orchestrator.core.gpu.vgpu_parameters import Scheduler
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.rules import CODES, CURABLE, LASTING, YIELDED, needs_of
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.units import GIB
from orchestrator.core.vms.vm import VmShape

EVERYTHING = Wanted(
    vm_id="vm",
    vm=VmShape(
        name="vm", tenant="t", profile="all", image="", vcpus=4, memory_mib=4096, disk_bytes=20 * GIB, network="",
        nic="rdma", tpm=True, host="h", gpu="g", pool="shared",
    ),
    offering=Offering(
        name="all", kind="time_sliced", vgpu_type="GRID T4-4Q", cpu="pinned", numa="strict", hugepages="2M",
        firmware="uefi", hosts=(("rack", "1"),), scheduler=Scheduler(policy="fixed_share"),
    ),
    uplinks=(Uplink(bridge="br0"),),
    overlay=True,
    leading_out=frozenset({"h"}),
    isolation="host",
    apart_from_vms=("other",),
    off_hosts=frozenset({"left"}),
    beside_snapshot="h",
)  # fmt: skip
NOT_RULES = {"__init__", "health", "rule", "wanted"}


def test_a_vm_that_asks_for_everything_has_a_need_of_each_rule() -> None:
    needs = needs_of(EVERYTHING)
    files = {Path(file).stem for file in Path(orchestrator.core.placement.rules.__path__[0]).glob("*.py")}
    assert {type(need).__module__.rpartition(".")[2] for need in needs} == files - NOT_RULES
    assert hash(needs) == hash(needs_of(EVERYTHING))


def test_each_refusal_has_words() -> None:
    needs = needs_of(EVERYTHING)
    told = {code for need in needs for code in need.codes if need.message(code)}
    assert told == CODES
    assert CODES | {"host.vcpus", "host.memory"} >= LASTING | CURABLE | YIELDED
    assert CURABLE.isdisjoint(LASTING)
    assert YIELDED <= CURABLE


def test_who_asks_for_nothing_is_kept_off_by_others_alone() -> None:
    vm = VmShape(name="vm", tenant="t", profile="p", image="", vcpus=1, memory_mib=1, disk_bytes=0, network="")
    needs = needs_of(Wanted(vm_id="vm", vm=vm, offering=Offering(name="p", kind="time_sliced", vgpu_type="T")))
    assert not any(need.filters for need in needs)
    assert all(need.keeps_off for need in needs)
