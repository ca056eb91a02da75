# SPDX-License-Identifier: Apache-2.0
"""What a tenant's guest writes into its vGPU's memory is looked for by the next tenant's guest, in the same piece of
the same GPU, however the first one ended."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from orchestrator.core.domain_xml.console import console_log
from tests.lab.conftest import LabHost, lab
from tests.lab.enrolled import SMALLEST, WHOLE, Enrolled, enrol
from tests.lab.test_moves import SPEAKS_WITHIN_S, WRITTEN

pytestmark = pytest.mark.lab

_EMPTY: Final = "00000000"
_HELD: Final = re.compile(r"^held ([0-9a-f]{8})$", re.MULTILINE)
_WRITTEN: Final = re.compile(rf"^[0-9a-f]{{8}} {WRITTEN}$", re.MULTILINE)
PROFILES: Final = {"mdev": "GRID T4-2Q", "vendor_vfio": "NVIDIA L40S-12Q"}
_INDEX: Final = {"mdev": "0", "vendor_vfio": "2"}
"""Of the GPU in the scenario."""


@pytest.fixture(scope="module")
def enrolled(mixed: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    with enrol(WHOLE, mixed, tmp_path_factory.mktemp("state")) as made:
        made.product.ok("image", "add", "counting", lab("guest-image", "--counting").strip())
        for tenant in ("red", "blue"):
            made.product.ok("tenant", "create", tenant)
        yield made
        for tenant in ("red", "blue"):
            made.product.ok("tenant", "delete", tenant, "--yes")


def create(enrolled: Enrolled, tenant: str, profile: str) -> str:
    """Id of a VM whose guest says what it finds, and writes afterwards."""
    words = ("--tenant", tenant, "--profile", profile, "--image", "counting", *SMALLEST)
    enrolled.product.ok("create-vm", "canary", *words)
    return str(enrolled.product.json("show-vm", "canary", "--tenant", tenant)["id"])


def held(enrolled: Enrolled, vm: str) -> str:
    """What its guest found when it booted; by now it has written."""
    end = time.monotonic() + SPEAKS_WITHIN_S
    while True:
        log = enrolled.shell(f"tr -d '\\r' <{console_log(vm)} || true")
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
        assert held(enrolled, vm) == _EMPTY
        end(enrolled, vm)
    vm = create(enrolled, "blue", profile)
    assert held(enrolled, vm) == _EMPTY
    enrolled.product.ok("stop-vm", "canary", "--tenant", "blue")
    enrolled.shell(f"truncate -s 0 {console_log(vm)}")
    enrolled.product.ok("start-vm", "canary", "--tenant", "blue")
    assert held(enrolled, vm) == _EMPTY

    lab("fault", enrolled.name, _INDEX[kind], "fault_create", "keep")  # a driver that does not clear: it is seen
    delete(enrolled, "blue")
    assert held(enrolled, create(enrolled, "red", profile)) == WRITTEN
    delete(enrolled, "red")

    rows = enrolled.product.json("gpu", "cleanings")
    assert len(rows) == before + len(ENDS) + 2
    assert {row["method"] for row in rows[: len(ENDS) + 2]} == {"vgpu_destroyed", "absent"}, "a stop has removed it"
    assert {row["tenant"] for row in rows[: len(ENDS) + 2]} == {"red", "blue"}


def test_a_whole_gpu_is_reset_between_two_tenants(enrolled: Enrolled) -> None:
    create(enrolled, "red", "gpu:1")
    (device,) = enrolled.product.json("show-vm", "canary", "--tenant", "red")["devices"]
    delete(enrolled, "red")
    (row,) = enrolled.product.json("gpu", "cleanings", "--gpu", device["gpu"], "--limit", "1")
    assert (row["device"], row["kind"]) == (device["gpu"], "passthrough")
    assert row["method"] in {"flr", "bus_reset"}
    assert f"GPU {device['gpu']} was reset" in enrolled.shell("dmesg")
