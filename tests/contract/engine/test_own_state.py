# SPDX-License-Identifier: Apache-2.0
"""A server whose state directory or database is no longer its own does nothing more."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pysqlite3 import dbapi2 as sqlite
from sqlalchemy import text

from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.state.directory import KnownCount, OwnFiles
from orchestrator.core.errors import Conflict
from orchestrator.server.backup import settle_restored
from orchestrator.server.known_database import KnownDatabase
from orchestrator.store.database import Store
from tests.fakes.control_plane import KEY, T4_HOST, control_plane, create_vm
from tests.fakes.new_database import engine_beside
from tests.fakes.running import client_of, wait_until_it_answers
from tests.postgres.cluster import Cluster

DATABASE = "vgpuctl.sqlite"


def move_away(state: Path) -> None:
    state.rename(state.with_name("elsewhere"))


def move_away_and_make_anew(state: Path) -> None:
    move_away(state)
    state.mkdir()


def remove_database(state: Path) -> None:
    (state / DATABASE).unlink()


def put_a_copy_in_its_place(state: Path) -> None:
    shutil.copy(state / DATABASE, state / "copy")
    (state / "copy").replace(state / DATABASE)


def remove_lock(state: Path) -> None:
    (state / "executor.lock").unlink()


HARMS = [move_away, move_away_and_make_anew, remove_database, put_a_copy_in_its_place, remove_lock]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.server.serve"], env={**os.environ, "VGPUCTL_STATE": str(state)}
    )
    wait_until_it_answers(process, state)
    yield process, state
    process.send_signal(signal.SIGKILL)
    process.wait(60)


def test_a_server_whose_state_directory_was_moved_away_ends(server: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, state = server
    move_away(state)
    assert process.wait(120) == Conflict.exit_code


@pytest.mark.parametrize("harm", HARMS)
def test_files_that_are_gone_or_replaced_are_noticed(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    state = tmp_path / "state"
    state.mkdir()
    for name in (DATABASE, "executor.lock"):
        (state / name).write_text("")
    files = OwnFiles(state, (DATABASE, "executor.lock"))
    files.check()
    harm(state)
    with pytest.raises(Conflict) as noticed:
        files.check()
    assert noticed.value.code == "serve.state_gone"


def _set_starts(url: str, starts: int) -> None:
    engine = engine_beside(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE meta SET value = :v WHERE key = 'starts'"), {"v": str(starts)})
    engine.dispose()


def test_a_restored_database_is_refused_until_a_person_has_settled_it(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.database()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "database_key").write_bytes(KEY)
    plane = control_plane(tmp_path, url=url)
    plane.add_host(T4_HOST)
    plane.services.vms.create(create_vm("begun"))
    before = plane.services.hosts.get(T4_HOST).host.epoch
    known = KnownCount(tmp_path)
    for _ in range(3):
        known.write(plane.store.count(known.read()))
    _set_starts(url, 1)
    with pytest.raises(Conflict) as refused:
        plane.store.count(known.read())
    assert refused.value.code == "store.restored"
    monkeypatch.setenv("VGPUCTL_DATABASE_URL", url)
    done = settle_restored(tmp_path, 1_800_000_000.0)
    assert (done.hosts, done.vms, done.stuck) == (1, 1, 1)
    assert plane.store.count(known.read()) > known.read()
    assert plane.services.hosts.get(T4_HOST).host.epoch > before, "the hosts refuse who does not know of the restore"
    plane.store.close()


@contextmanager
def opened(file: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{file}", key=KEY, new_site="site")
    yield store
    store.close()


def test_after_settling_every_controller_begins_whatever_it_had_seen(tmp_path: Path) -> None:
    """One that was started more often than the one on which a person has settled it as well."""
    with opened(tmp_path / DATABASE) as store:
        store.settle(3, 1_800_000_000.0)
        assert store.count(7) > 7
        settled = store.counted()
        store.settle(3, 1_700_000_000.0)
        assert store.counted() > settled, "a wall clock that went back lets nobody begin who knew more"


def test_a_server_is_refused_an_older_copy_of_its_database_although_it_began_only_once_meanwhile(
    server: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, state = server
    with closing(sqlite.connect(state / DATABASE)) as now, closing(sqlite.connect(state / "copy")) as copy:
        now.backup(copy)
    client_of(state).create_tenant("made-since")
    process.terminate()
    assert process.wait(120) == 0
    for file in state.glob(f"{DATABASE}*"):
        file.unlink()
    (state / "copy").rename(state / DATABASE)
    words = [sys.executable, "-m", "orchestrator.server.serve"]
    again = subprocess.run(words, env={**os.environ, "VGPUCTL_STATE": str(state)}, capture_output=True, text=True)
    assert (again.returncode, "[store.restored]" in again.stderr) == (Conflict.exit_code, True), again.stderr


def test_a_server_that_was_killed_is_refused_a_copy_that_lacks_its_last_moments(
    server: tuple[subprocess.Popen[bytes], Path],
) -> None:
    """Nothing was counted between the copy and its end."""
    process, state = server
    with closing(sqlite.connect(state / DATABASE)) as now, closing(sqlite.connect(state / "copy")) as copy:
        now.backup(copy)
    client_of(state).create_tenant("made-since")
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    for file in state.glob(f"{DATABASE}*"):
        file.unlink()
    (state / "copy").rename(state / DATABASE)
    words = [sys.executable, "-m", "orchestrator.server.serve"]
    again = subprocess.run(words, env={**os.environ, "VGPUCTL_STATE": str(state)}, capture_output=True, text=True)
    assert (again.returncode, "[store.restored]" in again.stderr) == (Conflict.exit_code, True), again.stderr


def _forget_newest(store: Store) -> None:
    """As a failover to a standby that lagged: the last commit is gone."""
    with store.begin() as tx:
        tx.connection.execute(text("DELETE FROM audit WHERE sequence = (SELECT max(sequence) FROM audit)"))
        tx.connection.execute(text("DELETE FROM tenants WHERE name = 'lost'"))


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_server_notices_that_the_database_forgot_its_last_commit_while_it_runs_and_when_it_begins(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    url = f"sqlite:///{tmp_path / DATABASE}"
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "database_key").write_bytes(KEY)
    if backend == "postgresql":
        url = request.getfixturevalue("postgres").database()
        monkeypatch.setenv("VGPUCTL_DATABASE_URL", url)
    plane = control_plane(tmp_path, url=url)
    known = KnownDatabase(tmp_path, plane.store)
    plane.services.tenancy.tenants.create("lost")
    known.check(rolled_back=False)
    _forget_newest(plane.store)
    with pytest.raises(Conflict) as noticed:
        known.check(rolled_back=False)
    assert noticed.value.code == "store.restored"
    with pytest.raises(Conflict) as refused:
        KnownDatabase(tmp_path, plane.store)
    assert refused.value.code == "store.restored"
    settle_restored(tmp_path, 1_800_000_000.0)
    KnownDatabase(tmp_path, plane.store).check(rolled_back=False)
    plane.store.close()


def test_a_server_that_counts_while_it_checks_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plane = control_plane(tmp_path)
    known = KnownDatabase(tmp_path, plane.store)
    plane.services.tenancy.tenants.create("written")

    def counted_before_a_round() -> int:
        counted = Store.counted(plane.store)
        known.round()
        return counted

    monkeypatch.setattr(plane.store, "counted", counted_before_a_round)
    known.check(rolled_back=False)
    plane.store.close()


def test_a_record_that_another_server_wrote_in_the_place_of_a_lost_one_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    plane = control_plane(tmp_path)
    known = KnownDatabase(tmp_path, plane.store)
    plane.services.tenancy.tenants.create("lost")
    _forget_newest(plane.store)
    with opened(tmp_path / DATABASE) as other, other.begin() as tx:
        tx.audit.append(at=1.0, actor="other", action="create", subject="x", outcome="accepted")
    with pytest.raises(Conflict):
        known.check(rolled_back=False)
    plane.store.close()


def test_a_controller_notices_that_the_database_forgot_what_it_wrote(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.sqlite'}"
    store = Store(url, key=KEY, new_site="site")
    living = LiveControllers(store, "one", alone=False)
    for _ in range(3):
        living.beat()
        assert not living.rolled_back
    with store.begin() as tx:
        tx.controllers.remove("one")  # others took it for dead
    living.beat()
    assert not living.rolled_back
    for _ in range(3):
        living.beat()
        assert not living.rolled_back
    engine = engine_beside(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE controllers SET beats = 2"))
    engine.dispose()
    living.beat()
    assert living.rolled_back
    store.close()
