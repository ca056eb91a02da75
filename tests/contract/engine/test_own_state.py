# SPDX-License-Identifier: Apache-2.0
"""A server whose state directory or database is no longer its own does nothing more."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.state.own import KnownStarts, OwnFiles
from orchestrator.adapters.store.database import SqlStore
from orchestrator.backup import settle_restored
from orchestrator.core.errors import Conflict
from tests.fakes.control_plane import KEY, T4_HOST, control_plane, create_vm
from tests.fakes.running import wait_until_it_answers
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
        [sys.executable, "-m", "orchestrator.serve"], env={**os.environ, "VGPUCTL_STATE": str(state)}
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
    engine = create_engine(url)
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
    known = KnownStarts(tmp_path)
    for _ in range(3):
        known.write(plane.store.count_start(known.read()))
    _set_starts(url, 1)
    with pytest.raises(Conflict) as refused:
        plane.store.count_start(known.read())
    assert refused.value.code == "store.restored"
    monkeypatch.setenv("VGPUCTL_DATABASE_URL", url)
    done = settle_restored(tmp_path, 1_800_000_000.0)
    assert (done.hosts, done.vms, done.stuck) == (1, 1, 1)
    assert plane.store.count_start(known.read()) > known.read()
    assert plane.services.hosts.get(T4_HOST).host.epoch > before, "the hosts refuse who does not know of the restore"
    plane.store.close()


def test_a_controller_notices_that_the_database_forgot_what_it_wrote(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.sqlite'}"
    store = SqlStore(url, key=KEY, new_site="site")
    living = LiveControllers(store, "one", alone=False)
    for _ in range(3):
        with living.beat():
            assert not living.rolled_back
    with store.begin() as tx:
        tx.controllers.remove("one")  # others took it for dead
    with living.beat():
        assert not living.rolled_back
    for _ in range(3):
        with living.beat():
            assert not living.rolled_back
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE controllers SET beats = 2"))
    engine.dispose()
    with living.beat():
        assert living.rolled_back
    store.close()
