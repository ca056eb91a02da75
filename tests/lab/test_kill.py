# SPDX-License-Identifier: Apache-2.0
"""The command line and the server are killed, at several moments of an operation."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping

import pytest

from tests.lab.enrolled import THE_FIRST, Enrolled
from tests.lab.host_facts import facts, owners, vgpu_count

pytestmark = pytest.mark.lab

ROUNDS = [5, pytest.param(25, marks=pytest.mark.soak)]


def _wait_for_state(enrolled: Enrolled, name: str, state: str, limit_s: float = 240) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        outcome = enrolled.product.run("show-vm", name, "-o", "json")
        if outcome.code == 0 and outcome.json()["state"] == state:
            return
        time.sleep(1)
    raise AssertionError(f"{name} did not become {state}: {outcome.out} {outcome.err}")


@pytest.mark.parametrize("enrolment", ["t4"], indirect=True)
def test_the_operation_finishes_when_the_command_line_is_killed(enrolled: Enrolled) -> None:
    product = enrolled.product
    process = product.start(*enrolled.request("orphan"))
    while product.run("show-vm", "orphan").code != 0:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _wait_for_state(enrolled, "orphan", "running")
    product.ok("delete-vm", "orphan")
    assert vgpu_count(enrolled.shell) == 0


def finish_and_give_back(
    enrolled: Enrolled, name: str, before: Mapping[str, list[str]], *words: str, state: str = "stopped"
) -> None:
    """The same command again shows or makes the VM; then nothing of it is left, on the host, in ledger and database."""
    product = enrolled.product
    product.ok(*enrolled.request(name, *words))
    assert product.json("show-vm", name)["state"] == state
    assert vgpu_count(enrolled.shell) == (1 if state == "running" else 0)
    assert len(facts(enrolled.shell)["domains"]) == len(before["domains"]) + 1
    product.ok("delete-vm", name)
    assert facts(enrolled.shell) == before
    assert owners(enrolled.shell) == {vm["id"] for vm in product.json("list-vms")}


@pytest.mark.parametrize("enrolment", THE_FIRST, indirect=True)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_killed_server_loses_nothing_and_leaves_nothing_extra(
    enrolled: Enrolled, rounds: int, record_property: Callable[[str, object], None]
) -> None:
    product = enrolled.product
    before = facts(enrolled.shell)
    moments = random.Random(20261121)
    for number in range(rounds):
        # one in five is started: a kill while its vGPU is made, QEMU starts or the guest boots
        words, state, latest = ((), "running", 20.0) if number % 5 == 4 else (("--no-start",), "stopped", 4.0)
        pid = product.serve_pid()
        process = product.start(*enrolled.request(f"killed-{number}", *words))
        time.sleep(moments.uniform(0.2, latest))
        os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=300)
        finish_and_give_back(enrolled, f"killed-{number}", before, *words, state=state)
    assert product.json("doctor") == []
    record_property("kills of the server", rounds)
