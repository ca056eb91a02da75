# SPDX-License-Identifier: Apache-2.0
"""A host reboots: with no controller its agent brings back what it may; in mid-create nothing is lost or left."""

from __future__ import annotations

import random
import time

import pytest

from tests.lab.conftest import lab
from tests.lab.enrolled import THE_FIRST, Enrolled
from tests.lab.host_facts import facts, owners, vgpu_count

pytestmark = pytest.mark.lab

RESTORED_S = 240


def _running(enrolled: Enrolled) -> list[str]:
    return sorted(enrolled.shell("virsh -q list --uuid").split())


def _until_running(enrolled: Enrolled, ids: list[str]) -> None:
    deadline = time.monotonic() + RESTORED_S
    while (seen := _running(enrolled)) != sorted(ids):
        assert time.monotonic() < deadline, (seen, enrolled.shell("journalctl -u vgpuctl-agent -b --no-pager | tail"))
        time.sleep(3)


def _until_at_rest(enrolled: Enrolled) -> None:
    """The server finds by itself that the host is back, and ends what it began there."""
    product, deadline = enrolled.product, time.monotonic() + RESTORED_S
    while True:
        host = product.json("host", "show", enrolled.name)["state"]
        states = {one["state"] for one in product.json("operation", "list")}
        if host == "ready" and states <= {"done", "undone"}:
            return
        assert time.monotonic() < deadline, (host, states)
        time.sleep(3)


@pytest.mark.soak
@pytest.mark.fault("F18")
@pytest.mark.parametrize("enrolment", THE_FIRST, indirect=True)
def test_a_reboot_without_a_controller_brings_vms_and_vgpus_back(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("alive"))
    product.ok(*enrolled.request("asks", "--boot-policy", "ask-controller"))
    product.ok(*enrolled.request("off", "--no-start"))
    alive, asks = (product.json("show-vm", name)["id"] for name in ("alive", "asks"))
    before = facts(enrolled.shell)
    product.ok("server", "stop")

    lab("reboot", enrolled.name)
    _until_running(enrolled, [alive])
    assert vgpu_count(enrolled.shell) == 1
    restored = facts(enrolled.shell)
    assert set(restored["mdevs"]) <= set(before["mdevs"])
    assert set(restored["vgpu_types"]) <= set(before["vgpu_types"])

    said = product.run("doctor", "-o", "json")
    assert said.code == 3, said.err
    assert [(one["code"], one["vm"]) for one in said.json()] == [("vm.not_running", asks)]
    product.run("doctor", "--repair")
    _until_running(enrolled, [alive, asks])
    assert facts(enrolled.shell) == before
    for name in ("alive", "asks", "off"):
        product.ok("delete-vm", name)
    assert vgpu_count(enrolled.shell) == 0


@pytest.mark.fault("F20")
@pytest.mark.parametrize("enrolment", ["l40s"], indirect=True)
def test_a_reboot_in_the_middle_of_a_create_loses_nothing_and_leaves_nothing_extra(enrolled: Enrolled) -> None:
    product = enrolled.product
    request = enrolled.request("rebooted")
    before = facts(enrolled.shell)
    process = product.start(*request)
    time.sleep(random.Random(20261121).uniform(2, 15))
    lab("reboot", enrolled.name)
    out, err = process.communicate(timeout=600)
    assert process.returncode in {0, 9, 10}, out + err

    _until_at_rest(enrolled)
    product.ok(*request)
    assert product.json("show-vm", "rebooted")["state"] == "running"
    assert vgpu_count(enrolled.shell) == 1
    product.ok("delete-vm", "rebooted")
    assert facts(enrolled.shell) == before
    assert owners(enrolled.shell) == set()
    assert product.json("doctor") == []


@pytest.mark.parametrize("enrolment", ["l40s"], indirect=True)
def test_a_host_is_emptied_reboots_once_and_runs_its_vm_again(enrolled: Enrolled) -> None:
    product, name = enrolled.product, enrolled.name
    product.ok(*enrolled.request("stays"))
    before, boot = facts(enrolled.shell), enrolled.shell("cat /proc/sys/kernel/random/boot_id")
    product.ok("host", "reboot", name, "--vms", "stop", "--reason", "a newer kernel")
    assert enrolled.shell("cat /proc/sys/kernel/random/boot_id") != boot
    host = product.json("host", "show", name)
    assert (host["state"], host["cordoned"]) == ("ready", False)
    assert product.json("show-vm", "stays")["state"] == "running"
    assert facts(enrolled.shell) == before
    (done,) = product.json("maintenance", "show")["hosts"]
    assert (done["phase"], done["why"]) == ("done", "")
    product.ok("delete-vm", "stays")
    assert vgpu_count(enrolled.shell) == 0
    assert product.json("doctor") == []
