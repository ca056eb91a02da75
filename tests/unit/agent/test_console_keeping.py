# SPDX-License-Identifier: Apache-2.0
"""What guests print stays for so long and as much as the host's agent is told, and no longer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.console_keeping import ConsoleBounds, ConsoleKeeper
from orchestrator.agent.libvirt.consoles import ConsoleLogs
from orchestrator.core.actions.host_actions import DefineDomain, StartDomain, StopDomain
from orchestrator.core.domain_xml.console import console_log
from orchestrator.core.errors import Retryable
from tests.unit.agent.bench import Bench, domain_of

NOW = 1_800_000_000.0
HOUR = 3600.0
MIB = 1024 * 1024
OTHER = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    furnished.do(DefineDomain(vm=furnished.vm, domain=domain_of(furnished.vm)))
    return furnished


def wrote(bench: Bench, suffix: str, *, hours_ago: float, size: int = 10, vm: str = "") -> Path:
    """A file of a VM's console as the daemon left it."""
    log = bench.host.paths.root / console_log(vm or bench.vm).removeprefix("/")
    log.parent.mkdir(parents=True, exist_ok=True)
    path = log.with_name(log.name + suffix)
    with path.open("wb") as file:
        file.truncate(size)
    os.utime(path, (NOW - hours_ago * HOUR,) * 2)
    return path


def kept(bench: Bench) -> list[str]:
    directory = (bench.host.paths.root / console_log(bench.vm).removeprefix("/")).parent
    return sorted(path.name.partition(".console")[2] for path in directory.iterdir())


def prune(bench: Bench, bounds: ConsoleBounds | None = None, uri: str = "test:///default") -> None:
    ConsoleKeeper(bench.host.paths, Libvirt(uri), bounds or ConsoleBounds(), clock=lambda: NOW).prune()


def test_what_a_stopped_vm_printed_stays_for_a_day(bench: Bench) -> None:
    wrote(bench, "", hours_ago=23)
    wrote(bench, ".0", hours_ago=23.5)
    wrote(bench, ".1", hours_ago=25)
    prune(bench)
    assert kept(bench) == ["", ".0"]
    assert ConsoleLogs(bench.host.paths).tail(bench.vm, 100) == bytes(20)
    wrote(bench, "", hours_ago=30)
    prune(bench)
    assert kept(bench) == [".0"]


def test_what_a_running_vm_printed_last_stays_however_quiet_it_is(bench: Bench) -> None:
    bench.do(StartDomain(vm=bench.vm))
    wrote(bench, "", hours_ago=100)
    wrote(bench, ".0", hours_ago=101)
    prune(bench)
    assert kept(bench) == [""]
    bench.do(StopDomain(vm=bench.vm, grace_seconds=0))
    prune(bench)
    assert kept(bench) == []


def test_the_oldest_goes_when_a_vm_has_printed_more_than_its_share(bench: Bench) -> None:
    for number, suffix in enumerate(("", ".0", ".1", ".2", ".3")):
        wrote(bench, suffix, hours_ago=number, size=2 * MIB)
    wrote(bench, "", hours_ago=1, size=2 * MIB, vm=OTHER)
    prune(bench)
    assert kept(bench) == ["", "", ".0", ".1", ".2"], "8 MiB of each VM"
    prune(bench, ConsoleBounds(hours=24, mib=4))
    assert kept(bench) == ["", "", ".0"]


def test_the_host_may_keep_more(bench: Bench) -> None:
    wrote(bench, "", hours_ago=100)
    prune(bench, ConsoleBounds(hours=24 * 7, mib=8))
    assert kept(bench) == [""]


def test_no_file_of_anybody_else_is_touched(bench: Bench) -> None:
    directory = wrote(bench, "", hours_ago=1).parent
    for name in ("debian.log", "vgpuctl-notes.console", f"vgpuctl-{OTHER}.console.bak", f"vgpuctl-{OTHER}.consolex"):
        (directory / name).write_bytes(b"")
        os.utime(directory / name, (0, 0))
    prune(bench)
    assert len(list(directory.iterdir())) == 5


def test_nothing_goes_while_libvirt_does_not_say_which_vms_run(bench: Bench) -> None:
    wrote(bench, "", hours_ago=100)
    with pytest.raises(Retryable):
        prune(bench, uri="test:///none")
    assert kept(bench) == [""]
