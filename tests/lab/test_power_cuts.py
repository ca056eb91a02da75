# SPDX-License-Identifier: Apache-2.0
"""Power is lost while an agent's ledger and a server's database are written to, on a host with a kernel of its own.

A host that is reset loses what its kernel had not written yet. Each reset takes as long as a boot.
"""

from __future__ import annotations

import random
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.conftest import LabHost, lab, of_scenario
from tests.lab.server_on_host import PLACE, ServerOnHost

pytestmark = pytest.mark.lab

SCRIPT = "/root/power_cuts.py"
STATE = "/var/lib/power-cuts"
RESETS = [2, pytest.param(8, marks=pytest.mark.soak)]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabHost]:
    """With the server's Python and all that it needs; no server runs."""
    for one in of_scenario("bare"):
        server = ServerOnHost(one)
        try:
            server.install(tmp_path_factory.mktemp("server"))
            one.run("systemctl disable --now vgpuctl")
            one.send(Path(__file__).with_name("power_cuts.py"), SCRIPT)
            yield one
        finally:
            server.remove()
            one.run(f"rm -rf {SCRIPT} {STATE}")


def command(*words: object) -> str:
    return shlex.join([f"{PLACE}/bin/python3", SCRIPT, *map(str, words)])


def _written_until(host: LabHost, entries: int) -> int:
    """The last entry that was told before the power went, a little after so many."""
    words = [sys.executable, "-m", "lab", "ssh", host.name, command("write", STATE)]
    told, said = 0, ""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            told, said = int(line) if line.strip().isdigit() else told, said + line
            if told >= entries:
                break
        assert told >= entries, said
        lab("reboot", host.name, "--power-cut")
        rest = writer.stdout.read().splitlines()
    return max([told, *(int(line) for line in rest if line.isdigit())])


@pytest.mark.fault("F19")
@pytest.mark.parametrize("resets", RESETS)
def test_a_host_that_is_reset_has_all_that_ledger_and_database_said_is_kept(
    host: LabHost, resets: int, record_property: Callable[[str, object], None]
) -> None:
    dice = random.Random(f"{resets} resets")
    for _ in range(resets):
        host.run(f"rm -rf {STATE}")
        told = _written_until(host, dice.randint(5, 60))
        host.run(command("check", STATE, told))
    record_property("power cuts: hosts reset while ledger and database were written to", resets)
