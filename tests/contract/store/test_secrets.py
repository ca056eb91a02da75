# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import select, update

from orchestrator.core.errors import Fatal
from orchestrator.core.tenancy.key_ring import with_new_key, without_old_keys
from orchestrator.store.database import Store
from orchestrator.store.tables import secrets
from tests.fakes.control_plane import KEY
from tests.fakes.new_database import engine_beside


def _blobs(url: str) -> dict[str, bytes]:
    engine = engine_beside(url)
    with engine.connect() as connection:
        found = {row.id: bytes(row.blob) for row in connection.execute(select(secrets))}
    engine.dispose()
    return found


def _put(url: str, secret_id: str, blob: bytes) -> None:
    engine = engine_beside(url)
    with engine.begin() as connection:
        connection.execute(update(secrets).where(secrets.c.id == secret_id).values(blob=blob))
    engine.dispose()


@pytest.fixture
def two(url: str) -> str:
    """The address of a database with two secrets."""
    made = Store(url, key=KEY, new_site="s")
    with made.begin() as tx:
        tx.secrets.put("red", "red's password")
        tx.secrets.put("blue", "blue's password")
    made.close()
    return url


def _read(url: str, secret_id: str, key: bytes = KEY) -> str:
    opened = Store(url, key=key, new_site="s")
    try:
        with opened.read() as tx:
            return tx.secrets.get(secret_id)
    finally:
        opened.close()


def test_a_secret_moved_to_another_row_is_not_read(two: str) -> None:
    _put(two, "red", _blobs(two)["blue"])
    with pytest.raises(Fatal) as caught:
        _read(two, "red")
    assert caught.value.code == "secret.unreadable"


@pytest.mark.parametrize("change", [b"", b"\x02", b"\x02" + bytes(11), b"\x02" + bytes(40), b"gAAAA"])
def test_a_secret_that_was_exchanged_is_not_read(two: str, change: bytes) -> None:
    _put(two, "red", change)
    with pytest.raises(Fatal):
        _read(two, "red")
    assert _read(two, "blue") == "blue's password"


def test_what_an_older_version_wrote_is_bound_when_the_database_is_opened(two: str) -> None:
    _put(two, "red", Fernet(KEY).encrypt(b"older"))
    assert _read(two, "red") == "older"
    _put(two, "blue", _blobs(two)["red"])
    with pytest.raises(Fatal):
        _read(two, "blue")


def test_after_a_change_of_keys_the_old_one_reads_nothing_and_what_it_wrote_is_refused(two: str) -> None:
    before, ring = _blobs(two), with_new_key(KEY, Fernet.generate_key())
    opened = Store(two, key=ring, new_site="s")
    with opened.begin() as tx:
        assert tx.secrets.encrypt_again() == 2
    opened.close()
    assert _read(two, "red", without_old_keys(ring)) == "red's password"
    with pytest.raises(Fatal):
        _read(two, "red")
    for old in (before["red"], Fernet(KEY).encrypt(b"forged")):
        _put(two, "red", old)
        with pytest.raises(Fatal):
            _read(two, "red", without_old_keys(ring))
