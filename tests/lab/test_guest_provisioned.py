# SPDX-License-Identifier: Apache-2.0
"""Roles in the Debian guest of a VM with a vGPU, inside of a lab host, through its agent's stream: all by commands.

On an emulated host everything of the guest is emulated twice: 48 minutes beside other work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.conftest import lab
from tests.lab.drivers import taken
from tests.lab.enrolled import MDEV, Enrolled, enrol_alone

pytestmark = [pytest.mark.lab, pytest.mark.soak, pytest.mark.timeout(3600)]
VERSION = "550.163.01"
"""The guest's driver that goes with the host's 550.163.02."""
SIZE = ("--vcpus", "1", "--memory", "1GiB", "--disk", "2GiB")
ROLES = ("guest_driver", "guest_check")
_BOOTED_WITHIN_S = 900
_PROVISIONED_WITHIN_S = 2700


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    directory = tmp_path_factory.mktemp("bundle")
    bundle = Path(
        lab("driver-bundle", "--guest", "--signed", "--version", VERSION, "--directory", str(directory)).strip()
    )
    image = lab("guest-image", "--debian").strip()
    kind, state = replace(MDEV, smallest=True), tmp_path_factory.mktemp("state")
    with enrol_alone(kind, state, guests_boot_within_s=_BOOTED_WITHIN_S) as one:
        one.product.ok(*taken(bundle, bundle.with_name(f"{bundle.name}.asc"), directory / "site-key.asc"))
        one.product.ok("image", "add", "debian", image)
        yield one


def results(site: Enrolled) -> list[tuple[str, str, int]]:
    """As the server keeps them: role, how it ended, how many of its tasks changed something."""
    kept = site.product.json("show-vm", "train")["provisioned"]["results"]
    return [(one["role"], one["state"], one["tasks_changed"]) for one in kept]


def let_in(site: Enrolled) -> set[str]:
    """Whom the guest's sshd has let in as the site's user: the operations that the keys' certificates name."""
    said = site.in_guest("train", "journalctl", "-q", "-o", "cat", "-t", "sshd-session", "-t", "sshd")
    return set(re.findall(r"Accepted publickey for vgpuctl .*ED25519-CERT .* ID vgpuctl (\S+) ", said))


def test_a_vm_with_a_vgpu_gets_its_driver_and_the_guest_has_a_device(site: Enrolled) -> None:
    product = site.product
    words = ("create-vm", "train", "--profile", site.profile, "--image", "debian", *SIZE, "--ssh-key", site.public_key)
    product.ok(*words, *(word for role in ROLES for word in ("--provision", role)), limit_s=_PROVISIONED_WITHIN_S)
    assert [(role, state) for role, state, _ in results(site)] == [("guest_driver", "changed"), ("guest_check", "ok")]
    facts = product.json("show-vm", "train")["provisioned"]["facts"]
    assert facts["driver"] == VERSION
    assert facts["cuda_devices"] == ["device 0 of the lab, 1024 MiB"]
    assert facts["gpus"] == [f"NVIDIA {site.guest_pci_id}, {VERSION}, [N/A]"]
    shown = product.ok("show-vm", "train").out
    assert re.search(rf"guest driver +{VERSION}", shown)
    assert site.in_guest("train", "cat", "/sys/module/nvidia/version").strip() == VERSION


def test_a_second_run_changes_nothing_and_each_run_has_a_key_of_its_own(site: Enrolled) -> None:
    site.product.ok("vm", "provision", "train", *ROLES, limit_s=_PROVISIONED_WITHIN_S)
    assert results(site) == [("guest_driver", "ok", 0), ("guest_check", "ok", 0)]
    runs = {one["id"] for one in site.product.json("operation", "list") if one["kind"] == "provision_vm"}
    assert len(runs) == 2
    assert let_in(site) == runs
