# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl vm suspend`` and ``vm resume`` on a lab host: what a guest has in memory and in its vGPU goes to the host's
disk, and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.two_hosts import Site, two_hosts

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with two_hosts(tmp_path_factory.mktemp("site")) as made:
        yield made


@pytest.mark.parametrize("offering", ["mdev", "vendor"])
def test_a_suspended_vm_goes_on_where_it_was(site: Site, offering: str) -> None:
    vm, host = site.start(offering), site.hosts["source"]
    counted = site.count(offering)
    site.product.run("doctor")  # its host is observed with what the driver says of its vGPU
    site.product.ok("vm", "suspend", offering, limit_s=300)
    assert site.where(vm) == ["source shut off"]
    shown = site.product.json("show-vm", offering)
    assert shown["state"] == "stopped"
    assert shown["suspended_bytes"] > 0
    assert host.run("ls /sys/bus/mdev/devices 2>/dev/null || true").strip() == ""
    assert int(host.run(f"stat -c %s /var/lib/vgpuctl-agent/volumes/{vm}.memory")) < shown["suspended_bytes"]
    site.product.ok("vm", "resume", offering, limit_s=300)
    assert site.where(vm) == ["source running"]
    assert host.run("ls /var/lib/vgpuctl-agent/volumes").split() == [f"{vm}.qcow2"]
    assert site.count(offering) > counted
    assert site.product.json("show-vm", offering)["suspended_bytes"] is None
    site.product.ok("delete-vm", offering, "--yes")


def test_memory_over_a_disk_that_was_written_to_is_refused_and_may_be_discarded(site: Site) -> None:
    vm, host = site.start("mdev"), site.hosts["source"]
    site.count("mdev")
    site.product.run("doctor")
    site.product.ok("vm", "suspend", "mdev", limit_s=300)
    host.run(f"touch /var/lib/vgpuctl-agent/volumes/{vm}.qcow2")
    refused = site.product.run("vm", "resume", "mdev", limit_s=300)
    assert refused.code != 0
    assert "vm.saved_memory_stale" in refused.err
    assert site.product.json("show-vm", "mdev")["suspended_bytes"] > 0
    site.product.ok("vm", "discard-suspended", "mdev", "--yes")
    assert host.run("ls /var/lib/vgpuctl-agent/volumes").split() == [f"{vm}.qcow2"]
    site.product.ok("start-vm", "mdev")
    site.count("mdev")
    site.product.ok("delete-vm", "mdev", "--yes")
