# SPDX-License-Identifier: Apache-2.0
"""A GPU is not there when its host's power is back: that is said, everything else comes back, and so does its VM once
the card does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from tests.lab.conftest import LabHost
from tests.lab.enrolled import MDEV, MIG_BACKED, VENDOR_VFIO, WHOLE, Enrolled, enrol
from tests.lab.host_facts import facts

pytestmark = pytest.mark.lab

_BACK_S = 300
_NOT_AT_THE_NEXT_BOOT = """
cat > /etc/systemd/system/lose-card.service <<UNIT
[Unit]
DefaultDependencies=no
After=vgpu-lab.service
Before=basic.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo 1 > /sys/bus/pci/devices/{gpu}/remove'
[Install]
WantedBy=basic.target
UNIT
systemctl -q enable lose-card.service; sync"""
_THERE_AGAIN = """
systemctl -q disable lose-card.service; rm /etc/systemd/system/lose-card.service; systemctl daemon-reload
echo 1 > /sys/bus/pci/rescan"""


@pytest.fixture(scope="module")
def enrolled(mixed: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    with enrol(WHOLE, mixed, tmp_path_factory.mktemp("state")) as one:
        yield one


def without(gpu: str, seen: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Facts about everything but this GPU. ``gpu``: its address; its functions have the same bus."""
    bus = gpu.rpartition(":")[0] + ":"
    return {about: [line for line in lines if bus not in line] for about, lines in seen.items()}


def found(enrolled: Enrolled) -> list[tuple[str, str | None]]:
    """Code and VM of each finding."""
    said = enrolled.product.run("doctor", "-o", "json")
    assert said.code in {0, 3}, said.err
    return sorted((str(one["code"]), one["vm"]) for one in said.json())


@pytest.mark.fault("F18")
def test_a_gpu_that_is_gone_after_a_power_cut_is_said_and_its_vm_is_back_when_it_is(enrolled: Enrolled) -> None:
    product = enrolled.product
    profiles = {"gone": VENDOR_VFIO.profile, "slices": MDEV.profile, "instance": MIG_BACKED.profile}
    for name, profile in profiles.items():
        product.ok(*enrolled.request_of(name, profile))
    shown = product.json("show-vm", "gone")
    vm, gpu = str(shown["id"]), str(shown["devices"][0]["gpu"])
    before = facts(enrolled.shell)

    enrolled.shell(_NOT_AT_THE_NEXT_BOOT.format(gpu=gpu))
    enrolled.restored_after_a_hard_reset("slices", "instance")
    assert without(gpu, facts(enrolled.shell)) == without(gpu, before)
    assert found(enrolled) == [("gpu.missing", None), ("vm.not_running", vm)]
    missing = f"GPU {gpu} is not on the host's bus"
    assert missing in product.json("host", "show", enrolled.name)["problems"]
    assert missing in product.ok("show-vm", "gone").out
    assert product.run("start-vm", "gone").code != 0
    assert sorted(one["name"] for one in product.json("list-vms") if one["state"] == "running") == [
        "instance",
        "slices",
    ]

    enrolled.shell(_THERE_AGAIN)
    product.run("doctor", "--repair")
    deadline = time.monotonic() + _BACK_S
    while found(enrolled) or facts(enrolled.shell) != before:
        assert time.monotonic() < deadline, (found(enrolled), facts(enrolled.shell), before)
        time.sleep(3)
    assert VENDOR_VFIO.guest_pci_id in enrolled.guest_says("gone")
