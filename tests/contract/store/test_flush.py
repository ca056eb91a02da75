# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from orchestrator.core.errors import Retryable
from orchestrator.store.database import Store
from orchestrator.store.sqlite.wal import Flush
from tests.fakes.control_plane import KEY

LIMIT_S = 120.0


def noted(tx_store: Store, number: int) -> None:
    with tx_store.begin() as tx:
        tx.audit.append(at=float(number), actor="a", action="b", subject="c", outcome="d")


def test_what_was_committed_is_on_disk_when_its_block_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.sqlite'}", key=KEY, new_site="s")
    log, flushed = tmp_path / "d.sqlite-wal", []
    flush = os.fdatasync

    def kept(descriptor: int) -> None:
        flush(descriptor)
        flushed.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fdatasync", kept)
    for number in range(3):
        noted(store, number)
        assert flushed[-1] == (log.stat().st_ino, log.stat().st_size)
    assert len(flushed) == 3
    store.close()


def test_a_log_that_was_removed_with_its_last_connection_needs_no_flush(tmp_path: Path) -> None:
    Flush(tmp_path / "gone.sqlite")()


def test_a_disk_that_fails_is_told_to_whoever_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.sqlite'}", key=KEY, new_site="s")

    def fails(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fails)
        with pytest.raises(Retryable) as caught:
            noted(store, 1)
    assert caught.value.code == "store.unavailable"
    noted(store, 2)
    store.close()


def test_those_who_commit_during_a_flush_share_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.sqlite-wal").touch()
    flush, flushes = Flush(tmp_path / "d.sqlite"), []
    begun, go_on = threading.Event(), threading.Event()

    def held(_descriptor: int) -> None:
        flushes.append(flush.asked)
        begun.set()
        assert go_on.wait(LIMIT_S)

    monkeypatch.setattr(os, "fdatasync", held)
    threads = [threading.Thread(target=flush) for _ in range(9)]
    threads[0].start()
    assert begun.wait(LIMIT_S)
    for one in threads[1:]:
        one.start()
    end = time.monotonic() + LIMIT_S
    while flush.asked < len(threads) and time.monotonic() < end:
        time.sleep(0.001)
    go_on.set()
    for one in threads:
        one.join(LIMIT_S)
    assert flushes == [1, 9]
