# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from pysqlite3 import dbapi2 as sqlite

from orchestrator.adapters.state.directory import ExecutorLock
from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.core.tenancy.key_ring import origin_of, secret_keys
from orchestrator.server.backup import DATABASE
from orchestrator.server.rotate_key import rotate
from orchestrator.services.tenancy.tenancy import tenancy
from orchestrator.store.database import Store
from orchestrator.store.sqlite.backup import url_of
from tests.fakes.control_plane import KEY
from tests.fakes.fake_world import FakeClock

NOW = 1_800_000_000.0


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "database_key").write_bytes(KEY)
    store = _store(tmp_path)
    with store.begin() as tx:
        tx.secrets.put("a", "password")
        tx.audit.append(at=NOW, actor="me", action="try", subject="it", outcome="done")
    store.close()
    return tmp_path


def _key(state: Path) -> bytes:
    return (state / "secrets" / "database_key").read_bytes()


def _store(state: Path) -> Store:
    return Store(url_of(state / DATABASE), key=_key(state), new_site="s")


def _secret(state: Path) -> str:
    store = _store(state)
    with store.read() as tx:
        found = tx.secrets.get("a")
    store.close()
    return found


def test_a_new_key_is_drawn_and_the_old_one_is_of_no_use(state: Path) -> None:
    assert rotate(state, NOW) == 1
    assert rotate(state, NOW) == 1
    ring = _key(state)
    assert (len(secret_keys(ring)), origin_of(ring)) == (1, KEY)
    assert secret_keys(ring) != (KEY,)
    assert (state / "secrets" / "database_key").stat().st_mode & 0o777 == 0o600
    assert _secret(state) == "password"


def test_records_of_the_audit_are_proven_after_it_as_before(state: Path) -> None:
    rotate(state, NOW)
    store = _store(state)
    people = tenancy(store, FakeClock(), owner_uid=0, key=_key(state))
    people.audit.seal()
    verdict = people.audit.verify()
    assert (verdict.problems, verdict.unsealed) == ((), 0)
    assert verdict.sealed >= 2
    store.close()


def test_nothing_is_changed_while_a_server_runs_or_without_a_key(state: Path, tmp_path: Path) -> None:
    lock = ExecutorLock(state / "executor.lock")
    with pytest.raises(Conflict):
        rotate(state, NOW)
    lock.release()
    assert _key(state) == KEY
    with pytest.raises(InvalidInput):
        rotate(tmp_path / "elsewhere", NOW)


def test_what_ended_half_way_is_finished_by_the_next_one(state: Path) -> None:
    store = _store(state)
    with store.begin() as tx:
        tx.secrets.put("b", "another")
    store.close()
    _damage(state)
    with pytest.raises(Fatal):
        rotate(state, NOW)
    assert len(secret_keys(_key(state))) == 2
    assert _secret(state) == "password"
    store = _store(state)
    with store.begin() as tx:
        tx.secrets.remove("b")
    store.close()
    assert rotate(state, NOW) == 1
    assert (len(secret_keys(_key(state))), _secret(state)) == (1, "password")


def _damage(state: Path) -> None:
    with sqlite.connect(state / DATABASE) as database:
        database.execute("update secrets set blob = x'02' where id = 'b'")
