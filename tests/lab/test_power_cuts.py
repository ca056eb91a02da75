# SPDX-License-Identifier: Apache-2.0
"""Power is lost while an agent's ledger and a server's database are written to, on a host with a kernel of its own.

A host that is reset loses what its kernel had not written yet; each takes as long as a boot. What a disk has not
written either when its power goes is taken from a log of a device (dm-log-writes): everything up to a moment, in the
order in which it was made durable, and nothing that came later.
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
LOGGED = "/dev/shm/power"
RESETS = [2, pytest.param(8, marks=pytest.mark.soak)]
CUTS = [25, pytest.param(200, marks=pytest.mark.soak)]
WRITTEN = 60
_LOGGED = f"""
set -e
mkdir -p {LOGGED}/mounted; cd {LOGGED}
truncate -s 64M base; mkfs.ext4 -q base; cp base disk; truncate -s 1G log
modprobe dm-log-writes; modprobe loop
disk=$(losetup --show -f disk); log=$(losetup --show -f log)
dmsetup create power --table "0 $(blockdev --getsz $disk) log-writes $disk $log"
mount /dev/mapper/power mounted
"""
_NOT_LOGGED = f"""
cd /; umount {LOGGED}/mounted; dmsetup remove power; losetup -D; rm -rf {LOGGED}/disk
"""


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
            one.run(f"rm -rf {SCRIPT} {STATE} {LOGGED}")


def command(*words: object) -> str:
    return shlex.join([f"{PLACE}/bin/python3", SCRIPT, *map(str, words)])


def _written_until(host: LabHost, entries: int) -> int:
    """The last entry that was told before the power went, a little after so many."""
    words = [sys.executable, "-m", "lab", "ssh", host.name, command("write", STATE, 1_000_000)]
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


@pytest.mark.fault("F19")
@pytest.mark.parametrize("cuts", CUTS)
def test_whatever_the_disk_had_not_written_yet_ledger_and_database_are_whole_and_have_what_was_told(
    host: LabHost, cuts: int, record_property: Callable[[str, object], None]
) -> None:
    try:
        host.run(_LOGGED)
        host.run(command("write", f"{LOGGED}/mounted/state", WRITTEN, "power"), limit_s=600)
    finally:
        host.run(_NOT_LOGGED)
    assert int(host.run(command("cuts", LOGGED, cuts, f"{cuts} cuts"), limit_s=1500)) == cuts
    record_property("power cuts: what a disk had written at a moment, ledger and database on it", cuts)
