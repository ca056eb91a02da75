# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.adapters.store.database import SqlStore
from orchestrator.core.errors import Retryable
from tests.fakes.control_plane import KEY


def held_by_all(store: SqlStore, held: ExitStack) -> None:
    """Until all connections that the pool may open are in use."""
    while True:
        held.enter_context(store.read())


def test_who_gets_no_connection_in_time_is_told_to_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqlStore(f"sqlite:///{tmp_path / 'c.sqlite'}", key=KEY, new_site="s")
    monkeypatch.setattr(store._engine.pool, "_timeout", 0.01)
    with ExitStack() as held, pytest.raises(Retryable) as raised:
        held_by_all(store, held)
    assert raised.value.code == "store.busy"
    store.close()
