# SPDX-License-Identifier: Apache-2.0
"""A VM's memory goes to a file of ours and comes back once, over the very disk that it left, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.core.actions.host_actions import DefineDomain, StartDomain, StopDomain, UndefineDomain
from orchestrator.core.actions.suspension import ResumeDomain, SuspendDomain
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.vms.vm import memory_file
from tests.unit.agent.bench import Bench, domain_of

MOST = 1024**2


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    furnished.do(DefineDomain(vm=furnished.vm, domain=domain_of(furnished.vm)))
    furnished.do(StartDomain(vm=furnished.vm))
    return furnished


def memory(bench: Bench) -> Path:
    return bench.storage.paths.volumes / memory_file(bench.vm)


def suspend(bench: Bench, most: int = MOST) -> bool:
    return bench.do(SuspendDomain(vm=bench.vm, max_bytes=most)).changed


def resume(bench: Bench) -> bool:
    return bench.do(ResumeDomain(vm=bench.vm, memory_bytes=MOST)).changed


def test_it_is_written_once_and_read_once(bench: Bench) -> None:
    assert suspend(bench)
    assert not bench.domains.is_active(bench.vm)
    assert memory(bench).exists()
    assert bench.wanted.vms() == (), "a boot of the host resumes nothing"
    assert not suspend(bench)
    (file,) = (file for file in bench.storage.volumes() if file.name == memory_file(bench.vm))
    assert file.owner == bench.vm
    assert resume(bench)
    assert bench.domains.is_active(bench.vm)
    assert bench.wanted.vms() == (bench.vm,)
    assert not memory(bench).exists()
    assert not resume(bench)


def test_a_start_goes_on_from_it(bench: Bench) -> None:
    suspend(bench)
    assert bench.do(StartDomain(vm=bench.vm)).message == "it goes on from its memory"
    assert not memory(bench).exists()


def test_over_a_disk_that_was_written_to_since_it_is_refused_and_stays(bench: Bench) -> None:
    suspend(bench)
    disk = bench.storage.paths.volumes / f"{bench.vm}.qcow2"
    os.utime(disk, ns=(0, disk.stat().st_mtime_ns + 1))
    with pytest.raises(Conflict) as refused:
        resume(bench)
    assert refused.value.code == "vm.saved_memory_stale"
    assert memory(bench).exists()
    assert not bench.domains.is_active(bench.vm)


def test_a_stop_and_the_end_of_its_definition_take_it_away(bench: Bench) -> None:
    suspend(bench)
    assert bench.do(StopDomain(vm=bench.vm, grace_seconds=0)).changed
    assert not memory(bench).exists()
    assert not bench.do(StopDomain(vm=bench.vm, grace_seconds=0)).changed
    assert bench.do(StartDomain(vm=bench.vm)).message == ""
    bench.do(StopDomain(vm=bench.vm, grace_seconds=0))
    bench.do(UndefineDomain(vm=bench.vm))
    assert bench.ledger.owner(f"volume:{memory_file(bench.vm)}") is None


def test_what_was_not_written_to_its_end_is_no_memory(bench: Bench) -> None:
    """As after a power cut: the VM boots from its disk."""
    suspend(bench)
    memory(bench).write_bytes(b"Test")
    with pytest.raises(Conflict) as refused:
        suspend(bench)
    assert refused.value.code == "vm.not_running"
    assert bench.do(StartDomain(vm=bench.vm)).message == ""
    assert not memory(bench).exists()


def test_without_room_nothing_is_begun(bench: Bench) -> None:
    with pytest.raises(Fatal) as refused:
        suspend(bench, 2**62)
    assert refused.value.code == "host.disk_full"
    assert bench.domains.is_active(bench.vm)
    assert not memory(bench).exists()


def test_a_file_that_somebody_else_put_there_is_not_its_memory(bench: Bench) -> None:
    bench.do(StopDomain(vm=bench.vm, grace_seconds=0))
    memory(bench).write_bytes(b"theirs")
    bench.do(StartDomain(vm=bench.vm))
    assert memory(bench).read_bytes() == b"theirs"
