# SPDX-License-Identifier: Apache-2.0
"""A snapshot as a file that stands alone, with qemu-img's own files, and on its way to the controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.agent_link.carrying import content_of
from orchestrator.adapters.images.inspecting import inspect
from orchestrator.agent.images.disk_images import read_header
from orchestrator.agent.images.volume_copies import check_may_go, records
from orchestrator.core.actions.disk_snapshots import FlattenSnapshot
from orchestrator.core.actions.host_actions import DeleteVolume
from orchestrator.core.errors import Conflict, NotFound, Retryable
from orchestrator.core.units import GIB
from orchestrator.core.vms.disk_snapshot import snapshot_file
from orchestrator.sim.disk_snapshots import empty_qcow2
from tests.unit.agent.bench import Bench
from tests.unit.agent.test_disk_snapshots import SIZE, Disk, bench, disk

assert bench
assert disk


def flat(bench: Bench, disk: Disk) -> FlattenSnapshot:
    return FlattenSnapshot(
        vm=bench.vm, disk=disk.volume, volume=snapshot_file(bench.vm, "2" * 36), snapshot=disk.snapshot, size_bytes=SIZE
    )


def test_it_shows_what_the_disk_showed_and_lies_on_nothing(bench: Bench, disk: Disk) -> None:
    then = disk.shows()
    bench.do(disk.take)
    disk.write(66)
    action = flat(bench, disk)
    copy = disk.volumes / action.volume
    assert [bench.do(action).changed for _ in range(2)] == [True, False]
    assert disk.shows(copy) == then
    assert read_header(copy, "qcow2").backing_name is None
    assert inspect(copy, "qcow2").virtual_bytes == SIZE, "what the server takes as an image"
    bench.do(DeleteVolume(vm=bench.vm, volume=action.volume))
    assert not copy.exists()
    assert disk.file.exists(), "the snapshot stays"


def test_one_that_is_gone_is_refused(bench: Bench, disk: Disk) -> None:
    with pytest.raises(NotFound) as gone:
        bench.do(flat(bench, disk))
    assert gone.value.code == "snapshot.missing"


class Giver:
    """What an agent sends of a file, in chunks of any size."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent

    def receive_bytes(self, size: int, _stall_s: float) -> bytes:
        chunk, self._sent = self._sent[: min(size, 10_000)], self._sent[min(size, 10_000) :]
        return chunk


def came(sent: bytes) -> bytes:
    giver: Any = Giver(sent)
    return b"".join(content_of(giver, 1.0))


def sent_of(bench: Bench, path: Path) -> bytes:
    return b"".join(records(bench.storage, bench.vm, path))


def test_its_file_comes_whole_with_its_holes_and_without_uefi_variables(bench: Bench, disk: Disk) -> None:
    bench.storage.nvram.put(bench.vm, b"SECRET")
    bench.do(disk.take)
    action = flat(bench, disk)
    bench.do(action)
    path = check_may_go(bench.storage, bench.vm, action.volume)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 3 * 2**20)
    sent = sent_of(bench, path)
    assert came(sent) == path.read_bytes()
    assert len(sent) < path.stat().st_size
    assert b"SECRET" not in sent


def test_no_file_of_another_vm_is_given(bench: Bench, disk: Disk) -> None:
    bench.do(disk.take)
    with pytest.raises(Conflict) as foreign:
        check_may_go(bench.storage, "f" * 36, disk.snapshot)
    assert foreign.value.code == "host.foreign_file"


def cut_or_changed(sent: bytes) -> Iterator[bytes]:
    yield sent[:-1]
    yield sent[: len(sent) // 2]
    yield b""
    middle = len(sent) // 2
    yield sent[:middle] + bytes([sent[middle] ^ 1]) + sent[middle + 1 :]


def test_what_is_cut_or_changed_on_its_way_is_no_file(bench: Bench, disk: Disk) -> None:
    bench.do(disk.take)
    sent = sent_of(bench, disk.file)
    for other in cut_or_changed(sent):
        with pytest.raises(Retryable) as cut:
            came(other)
        assert cut.value.code == "volume.cut"


@pytest.mark.parametrize("size_bytes", [GIB, 2048 * GIB])
def test_what_a_simulated_host_gives_is_an_image(tmp_path: Path, size_bytes: int) -> None:
    file = tmp_path / "disk"
    file.write_bytes(empty_qcow2(size_bytes))
    assert inspect(file, "qcow2").virtual_bytes == size_bytes
