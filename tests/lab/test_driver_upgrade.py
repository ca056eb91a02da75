# SPDX-License-Identifier: Apache-2.0
"""Drivers that are really built, loaded and swapped on a lab host, alone and by a rolling upgrade with a VM on it.

On an emulated host beside other work: seven minutes for the host, its bundles and the first driver, one to two for each
upgrade, two for each that fails and goes back, three for one that reboots. `make test-lab` has one way of failing,
`make soak` the others.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import lab, listed
from tests.lab.drivers import PROVISIONED_WITHIN_S, bring, loaded, lock, module_file
from tests.lab.enrolled import MDEV, Enrolled, enrol

pytestmark = [pytest.mark.lab]
FIRST, SECOND = "550.163.02", "570.172.08"
FAILING = [
    ("580.65.06", "vgpu", "vGPU"),
    pytest.param("580.95.05", "dkms", "DKMS could not build", marks=pytest.mark.soak),
    pytest.param("580.105.08", "load", "does not load", marks=pytest.mark.soak),
    pytest.param("580.126.09", "version", "not 580.126.09", marks=pytest.mark.soak),
]
"""Versions, the way each fails, and what the operator reads of it."""
LIMIT_S = PROVISIONED_WITHIN_S
KIND = replace(MDEV, smallest=True)
_BOOT = "cat /proc/sys/kernel/random/boot_id"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    """A t4 host with two bundles: the driver of the lab's image, and a newer one."""
    before = set(listed())
    lab("up", "--scenario", "lab/scenarios/t4.yaml")
    directory = tmp_path_factory.mktemp("bundles")
    with enrol(KIND, listed()["t4"], tmp_path_factory.mktemp("state")) as one:
        for version in (FIRST, SECOND):
            bring(one.product, directory, version)
        yield one
    if "t4" not in before:
        lab("down", "t4")


def _drivers(site: Enrolled) -> tuple[str | None, str | None]:
    """What the kernel and what NVML say."""
    return loaded(site.host), site.product.json("host", "show", site.name)["software"]["nvidia_driver"]


def _vm(site: Enrolled) -> Any:
    vm = site.product.json("show-vm", "train")
    return vm["state"], vm["devices"]


def _is_there(site: Enrolled) -> None:
    """The VM of these tests, also for one that is run alone."""
    if not site.product.json("list-vms"):
        site.product.ok(*site.request("train"))


def _upgrade(site: Enrolled) -> Any:
    return site.product.json("maintenance", "show")


def _until(site: Enrolled, *phases: str) -> Any:
    """The one host of the upgrade, once it is in one of these phases."""
    end = time.monotonic() + LIMIT_S
    while (one := _upgrade(site)["hosts"][0])["phase"] not in phases:
        assert time.monotonic() < end, one
        time.sleep(1)
    return one


def test_a_host_gets_the_locked_driver_by_one_command_and_a_second_time_changes_nothing(
    site: Enrolled, tmp_path: Path
) -> None:
    lock(site.product, tmp_path, SECOND)
    site.product.ok("host", "provision", site.name, limit_s=LIMIT_S)
    assert _drivers(site) == (SECOND, SECOND)
    before = module_file(site.host)
    site.product.ok("host", "provision", site.name, limit_s=LIMIT_S)
    assert module_file(site.host) == before


@pytest.mark.fault("F109")
def test_a_driver_that_a_vm_uses_is_not_touched_by_provisioning(site: Enrolled, tmp_path: Path) -> None:
    site.product.ok(*site.request("train"))
    lock(site.product, tmp_path, FIRST)
    refused = site.product.run("host", "provision", site.name, limit_s=LIMIT_S)
    assert refused.code != 0
    assert "still uses its driver" in refused.err + refused.out
    assert _drivers(site)[0] == SECOND


@pytest.mark.fault("F109")
def test_a_module_that_somebody_holds_stays_where_no_host_may_reboot_and_the_vm_comes_back(site: Enrolled) -> None:
    before = _vm(site)
    lab("fault", site.name, "0", "held", "1")
    failed = site.product.run("driver", "upgrade", "--to", FIRST, "--reboot", "never", limit_s=LIMIT_S)
    lab("fault", site.name, "0", "held", "0")
    assert failed.code != 0
    one = _upgrade(site)["hosts"][0]
    assert (one["phase"], "module nvidia is in use" in one["why"]) == ("rolled_back", True), one
    assert (_drivers(site)[0], _vm(site)) == (SECOND, before)
    site.product.ok("host", "uncordon", site.name)
    site.product.run("maintenance", "cancel")


@pytest.mark.fault("F115", "F119")
def test_an_upgrade_whose_server_is_killed_goes_on_and_the_vm_has_its_device_again(site: Enrolled) -> None:
    before = _vm(site)
    site.product.ok("driver", "upgrade", "--to", FIRST, "--no-wait")
    second = site.product.run("driver", "upgrade", "--to", SECOND)
    assert (second.code != 0, "an upgrade to" in second.err) == (True, True), second.err
    _until(site, "swapping")
    site.host.run("until ls /tmp/nvidia-installer.* >/dev/null 2>&1; do sleep 0.2; done", limit_s=LIMIT_S)
    os.kill(site.product.serve_pid(), signal.SIGKILL)
    assert _until(site, "done", "rolled_back", "failed", "kept")["phase"] == "done"
    assert _drivers(site) == (FIRST, FIRST)
    assert _vm(site) == before
    assert site.guest_pci_id in site.guest_says("train")
    assert not site.product.json("host", "show", site.name)["cordoned"]


@pytest.mark.fault("F111", "F113")
@pytest.mark.parametrize(("version", "fails", "said"), FAILING)
def test_a_driver_that_fails_is_taken_back_and_the_vm_runs_on_the_old_one(
    site: Enrolled, version: str, fails: str, said: str, tmp_path: Path
) -> None:
    _is_there(site)
    bring(site.product, tmp_path, version, fails)
    before, drivers = _vm(site), _drivers(site)
    failed = site.product.run("driver", "upgrade", "--to", version, limit_s=LIMIT_S)
    assert failed.code != 0
    one = _upgrade(site)["hosts"][0]
    assert (one["phase"], said in one["why"]) == ("rolled_back", True), one
    assert _drivers(site) == drivers
    assert _vm(site) == before
    assert site.product.json("host", "show", site.name)["cordoned"]
    site.product.ok("host", "uncordon", site.name)
    site.product.run("maintenance", "cancel")


@pytest.mark.fault("F116")
def test_a_host_that_a_person_cordoned_gets_its_driver_and_stays_cordoned(site: Enrolled) -> None:
    before = _vm(site)
    site.product.ok("host", "cordon", site.name)
    site.product.ok("driver", "upgrade", "--to", SECOND, limit_s=LIMIT_S)
    assert _drivers(site) == (SECOND, SECOND)
    assert _vm(site) == before
    assert site.product.json("host", "show", site.name)["cordoned"]
    site.product.ok("host", "uncordon", site.name)


@pytest.mark.fault("F109", "F115")
def test_a_host_whose_module_stays_in_use_reboots_within_its_upgrade_over_the_servers_death(site: Enrolled) -> None:
    _is_there(site)
    version = FIRST if loaded(site.host) == SECOND else SECOND
    before, boot = _vm(site), site.host.run(_BOOT)
    lab("fault", site.name, "0", "held", "1")
    planned = site.product.ok("driver", "upgrade", "--to", version, "--dry-run").out
    assert "reboots: hosts whose driver cannot be swapped otherwise" in planned
    site.product.ok("driver", "upgrade", "--to", version, "--no-wait")
    said = _until(site, "rebooting", "done", "rolled_back", "failed", "kept")
    assert (said["phase"], "module nvidia is in use" in said["progress"]) == ("rebooting", True), said
    os.kill(site.product.serve_pid(), signal.SIGKILL)
    ended = _until(site, "done", "rolled_back", "failed", "kept")
    assert ended["phase"] == "done", ended
    assert site.host.run(_BOOT) != boot
    assert _drivers(site) == (version, version)
    assert _vm(site) == before
    assert site.guest_pci_id in site.guest_says("train")
    assert "vgpuctl-swap.conf" not in site.host.run("ls /etc/modprobe.d")
    assert not site.product.json("host", "show", site.name)["cordoned"]
