# SPDX-License-Identifier: Apache-2.0
"""A database that a newer program has brought on: refused at a start, noticed while an older one runs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.store.database import Store
from tests.fakes.control_plane import KEY


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "vgpuctl.sqlite"
    Store(f"sqlite:///{path}", key=KEY, new_site="s").close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Conflict) as caught:
        Store(f"sqlite:///{path}", key=KEY, new_site="s")
    assert caught.value.code == "store.newer_schema"
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]


def test_a_schema_that_another_program_brought_on_is_noticed_and_an_older_one_is_not_blamed(tmp_path: Path) -> None:
    path = tmp_path / "vgpuctl.sqlite"
    store = Store(f"sqlite:///{path}", key=KEY, new_site="s")
    for revision, codes in (("0001", []), ("9999", ["store.schema_changed"])):
        with sqlite3.connect(path) as database:
            database.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        told: list[str] = []
        try:
            store.counted()
        except Conflict as error:
            told.append(error.code)
        assert told == codes
    store.close()
