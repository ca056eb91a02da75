# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import threading
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from pysqlite3 import dbapi2 as sqlite

from orchestrator.core.tenancy.audit import MAX_RECORD_TEXT
from orchestrator.store import connections
from orchestrator.store.database import Store
from orchestrator.store.sqlite import wal
from orchestrator.store.sqlite.wal import Checkpoints
from orchestrator.store.sqlite.writer_lock import WriterLock
from tests.fakes.control_plane import KEY

LIMIT_S = 120.0
NEVER = 1_000_000
SQLITE_MOVES_AFTER = 1000
"""Pages, where nothing else is said (sqlite.org/pragma.html#pragma_wal_autocheckpoint)."""
MANY = 12
LARGE = MANY * MAX_RECORD_TEXT
"""Bytes of a commit of so many records that are as long as records may be: 12 pages and more."""


def opened(directory: Path) -> Store:
    return Store(f"sqlite:///{directory / 'd.sqlite'}", key=KEY, new_site="s")


def write(store: Store, times: int, records: int = 1) -> None:
    """``records``: of each commit, as long as records are."""
    for number in range(times):
        with store.begin() as tx:
            for _ in range(records):
                tx.audit.append(at=float(number), actor="a", action="b", subject="c", outcome="d" * MAX_RECORD_TEXT)


def in_the_file_alone(directory: Path) -> int:
    """How many audit records the database has without its log."""
    alone = directory / "alone"
    alone.mkdir(exist_ok=True)
    shutil.copy(directory / "d.sqlite", alone / "d.sqlite")
    with closing(sqlite.connect(alone / "d.sqlite")) as database:
        there = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'audit'").fetchone()[0]
        return int(database.execute("SELECT count(*) FROM audit").fetchone()[0]) if there else 0


def moved(store: Store) -> None:
    """The move that is under way has ended."""
    assert store._checkpoints is not None
    assert store._checkpoints._under_way is not None
    store._checkpoints._under_way.result(LIMIT_S)


def test_no_commit_moves_a_log_that_is_not_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "EVERY", NEVER)
    store = opened(tmp_path)
    write(store, 120, MANY)
    assert (tmp_path / "d.sqlite-wal").stat().st_size > SQLITE_MOVES_AFTER * 4096
    assert in_the_file_alone(tmp_path) == 0
    store.close()
    assert in_the_file_alone(tmp_path) == 120 * MANY


def test_a_thread_moves_what_was_committed_and_the_log_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "EVERY", 1)
    store = opened(tmp_path)
    moved(store)
    of_tables = (tmp_path / "d.sqlite-wal").stat().st_size
    for number in range(40):
        write(store, 1, MANY)
        moved(store)
        assert in_the_file_alone(tmp_path) == (number + 1) * MANY
    assert (tmp_path / "d.sqlite-wal").stat().st_size < of_tables + 10 * LARGE
    store.close()


def test_commits_in_between_are_moved_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "EVERY", 10)
    store, begun = opened(tmp_path), threading.Event()
    monkeypatch.setattr(Checkpoints, "_move", lambda _: begun.set())
    assert store._checkpoints is not None
    write(store, 9 - store._checkpoints._commits)
    assert not begun.is_set()
    write(store, 1)
    assert begun.wait(LIMIT_S)
    store.close()


def test_a_long_log_is_moved_while_nobody_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "EVERY", 1)
    monkeypatch.setattr(wal, "LONG", 50)
    store, move = opened(tmp_path), wal._pages_moved
    moved(store)

    def hindered(connection: sqlite.Connection) -> int:
        """As by commits that come all the time: what is moved is never all."""
        assert isinstance(store._writer_lock, WriterLock)
        alone = store._writer_lock._lock.locked()
        return move(connection) if alone else (tmp_path / "d.sqlite-wal").stat().st_size // 4096

    monkeypatch.setattr(wal, "_pages_moved", hindered)
    for _ in range(40):
        write(store, 1, MANY)
        moved(store)
    assert (tmp_path / "d.sqlite-wal").stat().st_size < 20 * LARGE
    store.close()
    assert in_the_file_alone(tmp_path) == 40 * MANY


def test_who_commits_waits_for_no_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "EVERY", 1)
    go_on, move = threading.Event(), Checkpoints._move

    def held(self: Checkpoints) -> None:
        assert go_on.wait(LIMIT_S)
        move(self)

    monkeypatch.setattr(Checkpoints, "_move", held)
    store = opened(tmp_path)
    write(store, 20)
    go_on.set()
    store.close()
    assert in_the_file_alone(tmp_path) == 20


def test_a_log_beyond_its_bound_is_moved_by_whoever_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "EVERY", NEVER)
    monkeypatch.setattr(connections, "MAX_PAGES", 10)
    store = opened(tmp_path)
    write(store, 20, MANY)
    assert in_the_file_alone(tmp_path) >= 19 * MANY
    store.close()


def test_who_still_commits_while_the_server_ends_is_told_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "EVERY", 1)
    store = opened(tmp_path)
    store.close()
    write(store, 2)
    store.close()
    assert in_the_file_alone(tmp_path) == 2


def test_a_database_that_has_gone_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wal, "EVERY", 1)
    gone = Checkpoints(tmp_path / "gone.sqlite", nullcontext())
    gone.committed()
    gone.close()
    assert list(tmp_path.iterdir()) == []
    assert "the log of gone.sqlite was not moved into it" in caplog.text
