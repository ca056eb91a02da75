# SPDX-License-Identifier: Apache-2.0
"""Drivers that are really built, loaded and swapped on a lab host, alone and by a rolling upgrade with a VM on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.driver_files import Signer
from tests.lab.conftest import lab, listed
from tests.lab.enrolled import MDEV, Enrolled, enrol
from tests.lab.product import Product

pytestmark = [pytest.mark.lab]
FIRST, SECOND, UNBUILT, UNLOADED = "550.163.02", "570.172.08", "580.95.05", "580.105.08"
FAILS = {UNBUILT: "dkms", UNLOADED: "load"}
LIMIT_S = 1400.0
KIND = replace(MDEV, smallest=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    """A t4 host with its bundles: the driver of the lab's image, a newer one, and two that fail."""
    before = set(listed())
    lab("up", "--scenario", "lab/scenarios/t4.yaml")
    directory = tmp_path_factory.mktemp("bundles")
    with enrol(KIND, listed()["t4"], tmp_path_factory.mktemp("state")) as one:
        for version in (FIRST, SECOND, UNBUILT, UNLOADED):
            _bring(one.product, directory, version)
        yield one
    if "t4" not in before:
        lab("down", "t4")


def _bring(product: Product, directory: Path, version: str) -> None:
    signer = Signer()
    path = Path(
        lab(
            "driver-bundle", "--version", version, "--fails", FAILS.get(version, "none"), "--directory", str(directory)
        ).strip()
    )
    path.with_name("b.minisig").write_text(signer.sign(path.read_bytes()))
    path.with_name("b.pub").write_text(signer.key)
    product.ok(
        "driver", "bundle", "add", str(path), "--signature", str(path.with_name("b.minisig")),
        "--key", str(path.with_name("b.pub")),
    )  # fmt: skip


def _lock(site: Enrolled, directory: Path, version: str) -> None:
    lock = directory / "drivers.lock.yaml"
    lock.write_text(f"schema_version: 1\nsite:\n  host_driver: {version}\n")
    site.product.ok("driver", "lock", "apply", str(lock))


def _drivers(site: Enrolled) -> tuple[str, str | None]:
    """What the kernel and what NVML say."""
    loaded = re.search(r"Module\s+(\S+)", site.shell("cat /proc/driver/nvidia/version"))
    assert loaded is not None
    seen = site.product.json("host", "show", site.name)["software"]["nvidia_driver"]
    return loaded[1], seen


def test_a_host_gets_the_locked_driver_by_one_command_and_a_second_time_changes_nothing(
    site: Enrolled, tmp_path: Path
) -> None:
    _lock(site, tmp_path, SECOND)
    site.product.ok("host", "provision", site.name, limit_s=LIMIT_S)
    assert _drivers(site) == (SECOND, SECOND)
    loaded = site.shell("stat -c %Y /usr/lib/modules/$(uname -r)/updates/nvidia.ko; cat /run/vgpuctl-driver")
    site.product.ok("host", "provision", site.name, limit_s=LIMIT_S)
    assert site.shell("stat -c %Y /usr/lib/modules/$(uname -r)/updates/nvidia.ko; cat /run/vgpuctl-driver") == loaded


@pytest.mark.fault("F109")
def test_a_driver_that_a_vm_uses_is_not_touched_by_provisioning(site: Enrolled, tmp_path: Path) -> None:
    site.product.ok(*site.request("train"))
    _lock(site, tmp_path, FIRST)
    refused = site.product.run("host", "provision", site.name, limit_s=LIMIT_S)
    assert refused.code != 0
    assert "driver.in_use" in refused.err + refused.out or "still uses its driver" in refused.err + refused.out
    assert _drivers(site)[0] == SECOND


def test_an_upgrade_brings_the_vm_back_under_the_device_that_it_had(site: Enrolled) -> None:
    before = site.product.json("show-vm", "train")
    site.product.ok("driver", "upgrade", "--to", FIRST, limit_s=LIMIT_S)
    after = site.product.json("show-vm", "train")
    assert _drivers(site) == (FIRST, FIRST)
    assert (after["state"], after["devices"]) == ("running", before["devices"])
    assert site.guest_pci_id in site.guest_says("train")
    assert not site.product.json("host", "show", site.name)["cordoned"]


@pytest.mark.fault("F111")
@pytest.mark.parametrize("version", [UNBUILT, UNLOADED])
def test_a_driver_that_fails_is_taken_back_and_the_vm_runs_on_the_old_one(site: Enrolled, version: str) -> None:
    before = site.product.json("show-vm", "train")
    failed = site.product.run("driver", "upgrade", "--to", version, limit_s=LIMIT_S)
    assert failed.code != 0
    status = site.product.json("driver", "upgrade", "status")
    assert status["hosts"][0]["phase"] == "rolled_back", status
    assert _drivers(site) == (FIRST, FIRST)
    after = site.product.json("show-vm", "train")
    assert (after["state"], after["devices"]) == ("running", before["devices"])
    assert site.product.json("host", "show", site.name)["cordoned"]
    site.product.ok("host", "uncordon", site.name)
    site.product.run("driver", "upgrade", "abort")
