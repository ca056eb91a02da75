# SPDX-License-Identifier: Apache-2.0
"""Power is lost while an agent's ledger and a server's database are written to, on the kernel of lab hosts.

A machine that is reset loses what its kernel had not written yet. What a disk has not written either when its power
goes is taken from a log of a device: docs/decisions/tests.md.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.power_cuts import found, opened
from tests.lab.power_replay import cuts, files_of
from tests.lab.small_machine import DATA, SERVER, SmallMachine, disk_of, server_disk, small_machine

pytestmark = pytest.mark.lab

RESETS = [6, pytest.param(50, marks=pytest.mark.soak)]
REPLAYED = [60, pytest.param(250, marks=pytest.mark.soak)]
WRITTEN = 60
MIB = 64
_TRIES = 3
_PROGRAM = Path(__file__).with_name("power_cuts.py")
_WRITE = f"python3 {SERVER}/{_PROGRAM.name} {DATA}/state"
_LOADED = f"""
mount -t ext4 /dev/vdc {DATA}
while sleep 0.3; do dd if=/dev/zero of={DATA}/load bs=64k count=8 conv=notrunc 2>/dev/null; done &
{_WRITE}
"""
_LOGGED = f"""
dmsetup --noudevsync create power --table "0 {MIB << 11} log-writes /dev/vdc /dev/vdd"
mount -t ext4 /dev/dm-0 {DATA}
{_WRITE} power {WRITTEN}
umount {DATA} && dmsetup --noudevsync remove power
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return server_disk(tmp_path_factory.mktemp("server"), _PROGRAM)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A file system with a ledger and a database without an entry."""
    with opened(tmp_path / "tree" / "state"):
        pass
    return disk_of(tmp_path / "tree", tmp_path / "data.img", MIB)


def _told_until(machine: SmallMachine, kind: str) -> tuple[int, list[int]]:
    """The last entry that was told as kept before a line of this kind, and that line's numbers."""
    told = 0
    while True:
        said, *numbers = machine.line().split(".")
        assert said in {"kept", kind}, machine.noise
        if said == kind:
            return told, list(map(int, numbers))
        told = int(numbers[0])


def _back_after_a_reset(machine: SmallMachine) -> tuple[int, list[int]]:
    """An emulated machine is now and then silent after a reset, before it has mounted a disk: it is reset once more."""
    for _ in range(_TRIES - 1):
        machine.reset()
        with suppress(TimeoutError):
            return _told_until(machine, "found")
    machine.reset()
    return _told_until(machine, "found")


def _has_all(told: int, stored: int, owned: int) -> None:
    assert told <= owned <= stored <= owned + 1, (told, stored, owned)


@pytest.mark.fault("F19")
@pytest.mark.parametrize("resets", RESETS)
def test_a_host_that_is_reset_has_all_that_ledger_and_database_said_is_kept(
    server: Path, disk: Path, tmp_path: Path, resets: int, record_property: Callable[[str, object], None]
) -> None:
    dice = random.Random(f"{resets} resets")
    with small_machine(tmp_path, server, [disk], _LOADED) as machine:
        _, found_there = _told_until(machine, "found")
        assert found_there == [0, 0]
        for _ in range(resets):
            for _ in range(dice.randint(1, 6)):
                _, (told,) = _told_until(machine, "kept")
            time.sleep(dice.uniform(0.0, 0.5))  # anywhere in what comes next
            later, (stored, owned) = _back_after_a_reset(machine)
            _has_all(max(told, later), stored, owned)
    record_property("power cuts: machines reset while ledger and database were written to", resets)


@pytest.mark.fault("F19")
@pytest.mark.parametrize("replayed", REPLAYED)
def test_whatever_the_disk_had_not_written_yet_ledger_and_database_are_whole_and_have_what_was_told(
    server: Path, disk: Path, tmp_path: Path, replayed: int, record_property: Callable[[str, object], None]
) -> None:
    log, copy = tmp_path / "log.img", tmp_path / "before.img"
    log.touch()
    with log.open("r+b") as file:
        file.truncate(1 << 30)
    shutil.copyfile(disk, copy)
    with small_machine(tmp_path, server, [disk, log], _LOGGED) as machine:
        assert machine.line() == "ended with 0", machine.noise
    for told in cuts(copy, log, replayed, random.Random(f"{replayed} moments")):
        _has_all(told, *found(files_of(copy, "state", tmp_path)))
    record_property("power cuts: what a disk had at a moment, ledger and database on it", replayed)
