# SPDX-License-Identifier: Apache-2.0
"""A driver that refuses or hangs, a stopped libvirt, a cut channel: the host is as before, or we say what remains.

How the vGPU reaches the VM makes no difference to most of it: those tests name the one host they run on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab.conftest import lab
from tests.lab.enrolled import Enrolled
from tests.lab.host_facts import facts, vgpu_count

pytestmark = pytest.mark.lab

LIBVIRT = "libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd.service"
CUT = "pkill -f '[v]gpuctl-agent.pyz relay'; true"


@contextmanager
def driver_answers(enrolled: Enrolled, *how: str) -> Iterator[None]:
    """The first GPU's next vGPUs are made like this; from then on as always."""
    lab("fault", enrolled.name, "0", "fault_create", *how)
    try:
        yield
    finally:
        lab("fault", enrolled.name, "0", "fault_create", "none")


def take_the_rest_back(enrolled: Enrolled) -> None:
    """What the newest operation said remains, once the host is well again."""
    operation = enrolled.product.json("operation", "list")[0]
    assert operation["remainder"]
    enrolled.product.ok("operation", "retry", operation["id"])
    enrolled.product.run("operation", "wait", operation["id"])
    assert enrolled.product.json("operation", "show", operation["id"])["state"] == "undone"


@pytest.fixture(scope="session")
def used(enrolment: Enrolled) -> None:
    """Base image and network are on the host already, so that what a failed request leaves can be seen."""
    enrolment.product.ok(*enrolment.request("warm-up", "--no-start"))
    enrolment.product.ok("delete-vm", "warm-up")


@pytest.fixture
def untouched(enrolled: Enrolled, used: None) -> Iterator[None]:
    product = enrolled.product
    before, claims = facts(enrolled.shell), product.map()
    yield
    assert product.json("list-vms") == []
    assert facts(enrolled.shell) == before
    assert product.map() == claims


@pytest.mark.fault("F51")
@pytest.mark.parametrize("enrolment", ["l40s"], indirect=True)
@pytest.mark.usefixtures("untouched")
def test_a_driver_that_is_busy_for_a_moment_is_asked_again(enrolled: Enrolled) -> None:
    with driver_answers(enrolled, "busy", "2"):
        enrolled.product.ok(*enrolled.request("patient"))
    assert vgpu_count(enrolled.shell) == 1
    enrolled.product.ok("delete-vm", "patient")


@pytest.mark.fault("F50")
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("how", "code"), [(("busy", "1000"), "vgpu.busy"), (("io", "1000"), "vgpu.driver_refused")])
def test_a_driver_that_refuses_undoes_the_vm_and_is_named(enrolled: Enrolled, how: tuple[str, ...], code: str) -> None:
    with driver_answers(enrolled, *how):
        refused = enrolled.product.refused(9, *enrolled.request("refused"))
    assert code in refused.err
    assert "vGPU" in refused.err


@pytest.mark.fault("F10")
@pytest.mark.parametrize("enrolment", ["t4"], indirect=True)
@pytest.mark.usefixtures("untouched")
def test_a_driver_that_hangs_leaves_nothing_or_says_what(enrolled: Enrolled) -> None:
    product = enrolled.product
    with driver_answers(enrolled, "hang", "600"):
        outcome = product.run(*enrolled.request("hung"))
        assert outcome.code in {9, 10}, outcome.err
        assert "Traceback" not in outcome.out + outcome.err
    if outcome.code == 10:
        time.sleep(3)  # the write that hung ends once the driver answers again
        take_the_rest_back(enrolled)


@pytest.mark.parametrize("enrolment", ["l40s"], indirect=True)
@pytest.mark.usefixtures("untouched")
def test_a_vm_waits_for_a_stopped_libvirt_and_goes_on_when_it_is_back(enrolled: Enrolled) -> None:
    product = enrolled.product
    enrolled.shell(f"systemctl stop {LIBVIRT}")
    try:
        process = product.start(*enrolled.request("no-libvirt"))
        deadline = time.monotonic() + 200
        while not any(one["waits_for_host"] == enrolled.name for one in product.json("operation", "list", "--active")):
            assert time.monotonic() < deadline, product.json("operation", "list")
            time.sleep(1)
    finally:
        enrolled.shell(f"systemctl start {LIBVIRT}")
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, out + err
    assert f"waits for host {enrolled.name}" in out + err
    product.ok("delete-vm", "no-libvirt")


@pytest.mark.fault("F10")
@pytest.mark.parametrize("enrolment", ["l40s"], indirect=True)
@pytest.mark.usefixtures("untouched")
def test_a_channel_that_is_cut_again_and_again_only_slows_the_vm_down(enrolled: Enrolled) -> None:
    product = enrolled.product
    process = product.start(*enrolled.request("cut"))
    for _ in range(4):
        time.sleep(1)
        enrolled.shell(CUT)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, out + err
    assert vgpu_count(enrolled.shell) == 1
    product.ok("delete-vm", "cut")


@pytest.mark.fault("F78", "F84")
@pytest.mark.parametrize("enrolment", ["t4"], indirect=True)
@pytest.mark.usefixtures("untouched")
def test_a_gpu_whose_driver_logs_an_xid_takes_nothing_new_until_it_was_reset(enrolled: Enrolled) -> None:
    product = enrolled.product
    lab("fault", enrolled.name, "0", "xid", "45", "of a program")
    lab("fault", enrolled.name, "0", "xid", "95", "Uncontained ECC error")
    (found,) = product.run("doctor", "-o", "json").json()
    assert (found["code"], found["severity"]) == ("gpu.fault", "error")
    assert "Uncontained ECC error" in found["observed"]
    gpu = found["subject"].removeprefix("GPU ")
    closed = next(one for one in product.json("gpu", "list") if one["address"] == gpu)
    assert not any(use["free"] for use in closed["types"])
    enrolled.shell("systemctl restart vgpuctl-agent")
    assert _codes_when_it_answers(enrolled) == ["gpu.fault"]

    enrolled.shell(f"echo vgpuctl: GPU {gpu} was reset >/dev/kmsg")
    assert product.run("doctor", "-o", "json").json() == []
    product.ok(*enrolled.request("again"))
    product.ok("delete-vm", "again")


def _codes_when_it_answers(enrolled: Enrolled, limit_s: float = 120) -> list[str]:
    """What ``doctor`` finds once the host's agent, which was restarted, is there again."""
    deadline = time.monotonic() + limit_s
    while "host.unreachable" in (codes := [one["code"] for one in enrolled.product.run("doctor", "-o", "json").json()]):
        assert time.monotonic() < deadline, enrolled.shell("journalctl -u vgpuctl-agent -b --no-pager | tail")
        time.sleep(2)
    return codes
