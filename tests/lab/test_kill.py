# SPDX-License-Identifier: Apache-2.0
"""Killed processes: the command line, the server, at several moments of an operation."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from tests.lab.enrolled import SMALL, Enrolled
from tests.lab.host_facts import facts, vgpu_count

pytestmark = pytest.mark.lab

SERVER_KILLS = 5
"""Random moments on each kind of host; make soak takes more through VGPUCTL_TEST_KILLS."""


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
    process = product.start("create-vm", "orphan", "--profile", enrolled.profile, "--image", "guest", *SMALL)
    while product.run("show-vm", "orphan").code != 0:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _wait_for_state(enrolled, "orphan", "running")
    product.ok("delete-vm", "orphan")
    assert vgpu_count(enrolled.shell) == 0


def test_a_killed_server_loses_nothing_and_leaves_nothing_extra(enrolled: Enrolled) -> None:
    product = enrolled.product
    before = facts(enrolled.shell)
    moments = random.Random(20261121)
    for round_number in range(int(os.environ.get("VGPUCTL_TEST_KILLS", SERVER_KILLS))):
        name = f"killed-{round_number}"
        request = ("create-vm", name, "--profile", enrolled.profile, "--image", "guest", *SMALL)
        pid = product.serve_pid()
        process = product.start(*request, "--no-start")
        time.sleep(moments.uniform(0.2, 4.0))
        os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=120)
        product.ok(*request, "--no-start")
        assert product.json("show-vm", name)["state"] == "stopped"
        assert len(facts(enrolled.shell)["domains"]) == len(before["domains"]) + 1
        product.ok("delete-vm", name)
        assert facts(enrolled.shell) == before, f"round {round_number}"
