# SPDX-License-Identifier: Apache-2.0
"""A database that a newer program has brought on, or one before the first schema has left: refused at a start; a newer
one is noticed while an older program runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pysqlite3 import dbapi2 as sqlite

from orchestrator.core.errors import Conflict
from orchestrator.store.database import Store
from tests.fakes.control_plane import KEY


@pytest.mark.parametrize(
    ("revision", "code"),
    [("9999", "store.newer_schema"), ("0002", "store.older_schema"), ("0054", "store.older_schema")],
)
def test_a_schema_that_is_not_known_is_refused_and_left_alone(tmp_path: Path, revision: str, code: str) -> None:
    path = tmp_path / "vgpuctl.sqlite"
    Store(f"sqlite:///{path}", key=KEY, new_site="s").close()
    with sqlite.connect(path) as database:
        database.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    before = path.read_bytes()
    with pytest.raises(Conflict) as caught:
        Store(f"sqlite:///{path}", key=KEY, new_site="s")
    assert (caught.value.code, caught.value.hint is None) == (code, False)
    assert f"schema {revision}" in caught.value.message
    assert path.read_bytes() == before


def test_a_schema_that_another_program_brought_on_is_noticed_and_an_older_one_is_not_blamed(tmp_path: Path) -> None:
    path = tmp_path / "vgpuctl.sqlite"
    store = Store(f"sqlite:///{path}", key=KEY, new_site="s")
    for revision, codes in (("0001", []), ("9999", ["store.schema_changed"])):
        with sqlite.connect(path) as database:
            database.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        told: list[str] = []
        try:
            store.counted()
        except Conflict as error:
            told.append(error.code)
        assert told == codes
    store.close()
