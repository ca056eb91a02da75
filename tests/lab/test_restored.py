# SPDX-License-Identifier: Apache-2.0
"""A backup is restored while a host has gone on: what is newer there is listed and taken over, nothing is destroyed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.conftest import LabHost
from tests.lab.enrolled import MDEV, Enrolled, add_host
from tests.lab.host_facts import vgpu_count
from tests.lab.product import Product

pytestmark = pytest.mark.lab

KIND = replace(MDEV, smallest=True)


def listed(one: Enrolled) -> dict[str, str]:
    """What is to be settled: kind by what it says."""
    return {str(item["what"]): str(item["kind"]) for item in one.product.json("server", "settle-restored")}


@pytest.mark.fault("F99")
def test_what_a_host_did_after_the_backup_is_settled_and_its_vms_run_on(t4: LabHost, tmp_path: Path) -> None:
    settings = {"VGPUCTL_VCPU_OVERCOMMIT": "32", "VGPUCTL_GUEST_SEEN_SECONDS": "0"}
    lost, restored, backup = (tmp_path / name for name in ("lost", "restored", "monday"))
    product = Product(lost, settings)
    lost.mkdir()
    try:
        first = Enrolled(product=product, kind=KIND, host=t4, gpu=add_host(product, KIND, t4), public_key="")
        for name in ("kept", "removed", "stopped"):
            product.ok(*first.request(name))
        product.ok("server", "backup", str(backup))
        product.ok(*first.request("younger"))
        product.ok("delete-vm", "removed", "--yes")
        product.ok("stop-vm", "stopped", "--force")
        processes = {name: first.running_since(name) for name in ("kept", "younger")}
    finally:
        product.close()
    one = replace(first, product=Product(restored, settings))
    try:
        one.product.ok("server", "restore", str(backup))
        _settle(one, processes)
    finally:
        one.product.close()


def _settle(one: Enrolled, processes: dict[str, str]) -> None:
    one.product.ok("host", "list")  # a server runs from here on
    found = listed(one)
    assert sorted(found.values()) == ["gone", "runs", "vm"], found
    assert vgpu_count(one.shell) == 2, "looking changes nothing"
    one.product.ok("server", "settle-restored", "--take-over", "all")
    one.product.ok("delete-vm", "removed", "--yes")
    one.product.ok("start-vm", "stopped")
    assert listed(one) == {}
    assert one.product.ok("doctor").out.strip() == "nothing differs"
    assert {name: one.running_since(name) for name in processes} == processes
    assert vgpu_count(one.shell) == 3
    one.clear()
    assert vgpu_count(one.shell) == 0
    one.product.ok("host", "remove", one.name)
