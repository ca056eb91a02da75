# SPDX-License-Identifier: Apache-2.0
"""What a tenant's guest writes into its vGPU's memory is looked for by the next tenant's guest, in the same piece of
the same GPU, however the first one ended."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from orchestrator.core.domain_xml.console import console_log
from tests.lab.conftest import LabHost, lab
from tests.lab.enrolled import SMALLEST, WHOLE, Enrolled, enrol
from tests.lab.test_moves import SPEAKS_WITHIN_S, WRITTEN

pytestmark = pytest.mark.lab

EMPTY: Final = "00000000"
_HELD: Final = re.compile(r"^held ([0-9a-f]{8})$", re.MULTILINE)
_WRITTEN: Final = re.compile(rf"^[0-9a-f]{{8}} {WRITTEN}$", re.MULTILINE)
PROFILES: Final = {"mdev": "GRID T4-16Q", "vendor_vfio": "NVIDIA L40S-48Q"}
"""Each fills its GPU: whatever comes next has the same piece."""
_INDEX: Final = {"mdev": "0", "vendor_vfio": "2"}
"""Of the GPU in the scenario."""

_BY_HAND: Final = "6f6c7a1e-7a52-4b0f-9d64-0e9b5a3f1c01"
_DOMAIN: Final = f"""<domain type='kvm'>
  <name>byhand</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/><apic/><smm state='off'/></features><cpu mode='host-passthrough'/>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/var/tmp/counting.qcow2'/>
      <target dev='vda' bus='virtio'/><readonly/></disk>
    <controller type='usb' model='none'/><memballoon model='none'/><serial type='pty'/>
    <hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{_BY_HAND}'/></source></hostdev>
  </devices>
</domain>"""


@pytest.fixture(scope="module")
def enrolled(mixed: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    with enrol(WHOLE, mixed, tmp_path_factory.mktemp("state")) as made:
        made.product.ok("image", "add", "counting", lab("guest-image", "--counting").strip())
        for tenant in ("red", "blue"):
            made.product.ok("tenant", "create", tenant)
        made.product.ok("policy", "set", "blue", "preempt=yes", "max-priority=high")
        yield made
        for tenant in ("red", "blue"):
            made.product.ok("tenant", "delete", tenant, "--yes")


def create(enrolled: Enrolled, tenant: str, profile: str, *options: str) -> str:
    """Id of a VM whose guest says what it finds, and writes afterwards."""
    words = ("--tenant", tenant, "--profile", profile, "--image", "counting", *SMALLEST, *options)
    enrolled.product.ok("create-vm", "canary", *words)
    return str(enrolled.product.json("show-vm", "canary", "--tenant", tenant)["id"])


def held(shell: Callable[[str], str], vm: str) -> str:
    """What its guest found when it booted; by now it has written. ``shell`` is of its host."""
    end = time.monotonic() + SPEAKS_WITHIN_S
    while True:
        log = shell(f"tr -d '\\r' <{console_log(vm)} || true")
        found = _HELD.search(log)
        if found is not None and _WRITTEN.search(log):
            return found[1]
        assert time.monotonic() < end, log
        time.sleep(1)


def delete(enrolled: Enrolled, tenant: str) -> None:
    enrolled.product.ok("delete-vm", "canary", "--tenant", tenant, "--yes")


def _killed(enrolled: Enrolled, vm: str) -> None:
    enrolled.shell(f"kill -9 $(pgrep -f {vm} | head -n 1)")
    delete(enrolled, "red")


def _stopped(enrolled: Enrolled, _vm: str) -> None:
    enrolled.product.ok("stop-vm", "canary", "--tenant", "red")
    delete(enrolled, "red")


ENDS: Final[dict[str, Callable[[Enrolled, str], None]]] = {
    "deleted": lambda enrolled, _: delete(enrolled, "red"),
    "killed": _killed,
    "stopped": _stopped,
}


@pytest.mark.parametrize("kind", PROFILES)
def test_a_second_tenant_finds_nothing_of_the_first(enrolled: Enrolled, kind: str) -> None:
    profile, before = PROFILES[kind], len(enrolled.product.json("gpu", "cleanings"))
    for end in ENDS.values():
        vm = create(enrolled, "red", profile)
        assert held(enrolled.shell, vm) == EMPTY
        end(enrolled, vm)
    assert held(enrolled.shell, create(enrolled, "red", profile)) == EMPTY
    vm = create(enrolled, "blue", profile, "--priority", "high", "--preempt")
    assert enrolled.product.json("show-vm", "canary", "--tenant", "red")["state"] == "stopped"
    assert held(enrolled.shell, vm) == EMPTY
    delete(enrolled, "red")
    enrolled.product.ok("stop-vm", "canary", "--tenant", "blue")
    enrolled.shell(f"truncate -s 0 {console_log(vm)}")
    enrolled.product.ok("start-vm", "canary", "--tenant", "blue")
    assert held(enrolled.shell, vm) == EMPTY

    lab("fault", enrolled.name, _INDEX[kind], "fault_create", "keep")  # a driver that does not clear: it is seen
    delete(enrolled, "blue")
    assert held(enrolled.shell, create(enrolled, "red", profile)) == WRITTEN
    delete(enrolled, "red")

    rows = enrolled.product.json("gpu", "cleanings")
    assert len(rows) == before + len(ENDS) + 3
    assert {row["method"] for row in rows[: len(ENDS) + 3]} == {"vgpu_destroyed"}, "by a stop too"
    assert {row["tenant"] for row in rows[: len(ENDS) + 3]} == {"red", "blue"}


def test_a_vm_that_was_adopted_leaves_nothing_for_the_next_tenant(enrolled: Enrolled) -> None:
    types = f"/sys/class/mdev_bus/{enrolled.gpu}/mdev_supported_types"
    enrolled.host.send(Path(lab("guest-image", "--counting").strip()), "/var/tmp/counting.qcow2")
    enrolled.shell(f"""
        echo {_BY_HAND} >$(dirname $(grep -lx '{PROFILES["mdev"]}' {types}/*/name))/create
        echo "{_DOMAIN}" >/tmp/byhand.xml; virsh define /tmp/byhand.xml; virsh start byhand
        timeout {SPEAKS_WITHIN_S:.0f} grep -m 1 {WRITTEN} $(virsh ttyconsole byhand)""")
    enrolled.product.run("doctor")
    enrolled.product.ok("adopt-vm", enrolled.name, "byhand", "--tenant", "red", "--name", "canary")
    delete(enrolled, "red")
    (row,) = enrolled.product.json("gpu", "cleanings", "--limit", "1")
    assert (row["tenant"], row["method"]) == ("red", "vgpu_destroyed")
    assert held(enrolled.shell, create(enrolled, "blue", PROFILES["mdev"])) == EMPTY
    delete(enrolled, "blue")


_ECC: Final = "nvidia-smi --query-gpu=pci.bus_id,ecc.mode.current,ecc.mode.pending --format=csv,noheader"


def test_the_ecc_mode_that_a_guest_has_set_is_as_before_after_it(enrolled: Enrolled) -> None:
    before = enrolled.shell(_ECC)
    create(enrolled, "red", "gpu:1")
    (device,) = enrolled.product.json("show-vm", "canary", "--tenant", "red")["devices"]
    switch = f"grep -q 'bdf {device['gpu']}' $gpu/state && echo 0 >$gpu/ecc_mode"
    enrolled.shell(f"for gpu in /sys/kernel/vgpu_lab/gpus/*; do {switch}; done; true")  # by its guest
    delete(enrolled, "red")
    assert enrolled.shell(_ECC) == before
    (row,) = enrolled.product.json("gpu", "cleanings", "--gpu", device["gpu"], "--limit", "1")
    assert row["method"] in {"flr", "bus_reset"}


def test_a_whole_gpu_is_reset_between_two_tenants(enrolled: Enrolled) -> None:
    create(enrolled, "red", "gpu:1")
    (device,) = enrolled.product.json("show-vm", "canary", "--tenant", "red")["devices"]
    delete(enrolled, "red")
    (row,) = enrolled.product.json("gpu", "cleanings", "--gpu", device["gpu"], "--limit", "1")
    assert (row["device"], row["kind"]) == (device["gpu"], "passthrough")
    assert row["method"] in {"flr", "bus_reset"}
    assert f"GPU {device['gpu']} was reset" in enrolled.shell("dmesg")
