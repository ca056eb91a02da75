# SPDX-License-Identifier: Apache-2.0
"""A backup that is read while restic rewrites its repository, or where no lock can be written."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.images import repository as agent_repository
from orchestrator.agent.images.repository import DISK, MountedRepository, Repository
from orchestrator.agent.process import Finished, pour
from orchestrator.core.errors import Fatal, Retryable

MIB = 2**20


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """With two backups, the second of which has half of what the first one has stored."""
    made = MountedRepository("secret", threading.Event(), 600, tmp_path / "vm")
    made.make()
    file, drawn = tmp_path / "disk", random.Random(7)
    first = [drawn.randbytes(MIB) for _ in range(40)]
    file.write_bytes(b"".join(first))
    made.add(file, DISK, ("first",), 0)
    file.write_bytes(b"".join(first[20:]))
    made.add(file, DISK, ("second",), 0)
    return made


def test_what_is_removed_meanwhile_takes_nothing_from_a_backup_that_is_read(
    repository: Repository, tmp_path: Path
) -> None:
    """By another host. Removing the first writes what the second shares into other files."""
    read, refused = bytearray(), list[str]()

    def take(piece: bytes) -> None:
        if not read:
            try:
                repository.remove("first")
            except Retryable as error:
                refused.append(error.code)
        read.extend(piece)

    repository.read("second", DISK, take)
    assert bytes(read) == (tmp_path / "disk").read_bytes()
    assert refused == ["backup.busy"]
    assert repository.remove("first")


def test_of_a_target_that_no_lock_can_be_written_to_it_is_read_all_the_same(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(argv: list[str], take: Callable[[bytes], object], **limits: Any) -> Finished:
        if "--no-lock" not in argv:
            return Finished(1, "unable to create lock in backend: save: no space left on device")
        return pour(argv, take, **limits)

    read = bytearray()
    monkeypatch.setattr(agent_repository, "pour", full)
    repository.read("second", DISK, read.extend)
    assert bytes(read) == (tmp_path / "disk").read_bytes()


def test_a_list_that_is_longer_than_any_is_not_read_to_its_end(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had the password may have put there what another host's agent would have to hold."""
    assert repository.listed("default") == []
    monkeypatch.setattr(agent_repository, "_MAX_PRINTED", 500)
    with pytest.raises(Fatal) as refused:
        repository.listed("default")
    assert refused.value.code == "backup.failed"
