# SPDX-License-Identifier: Apache-2.0
"""The agent and libvirt are killed on their host while a VM is made there."""

from __future__ import annotations

import random
import time

import pytest

from tests.lab.enrolled import Enrolled
from tests.lab.host_facts import facts
from tests.lab.test_kill import finish_and_give_back

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("daemon", ["vgpuctl-agent", "libvirtd"])
@pytest.mark.parametrize("enrolment", ["t4"], indirect=True)
def test_a_daemon_that_is_killed_on_the_host_loses_nothing(enrolled: Enrolled, daemon: str) -> None:
    before = facts(enrolled.shell)
    process = enrolled.product.start(*enrolled.request(f"without-{daemon}", "--no-start"))
    time.sleep(random.Random(daemon).uniform(0.5, 3.0))
    enrolled.shell(f"systemctl kill --signal KILL {daemon}")
    out, err = process.communicate(timeout=300)
    assert process.returncode in {0, 9}, out + err
    finish_and_give_back(enrolled, f"without-{daemon}", before, "--no-start")
    assert enrolled.product.json("doctor") == []
