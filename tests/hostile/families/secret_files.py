# SPDX-License-Identifier: Apache-2.0
"""Stored secrets and encrypted backups that somebody moved, cut or changed."""

from __future__ import annotations

from functools import cache, partial
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cryptography.fernet import Fernet
from pyrage.x25519 import Identity

from orchestrator.core.errors import InvalidInput
from orchestrator.server.backup import DATABASE, back_up, restore
from orchestrator.store.database import Store
from orchestrator.store.secrets import SecretBox, Unreadable
from orchestrator.store.sqlite.backup import url_of
from tests.fakes.control_plane import KEY
from tests.hostile.families.family import Attack, Family

ROWS = tuple(f"row-{number}" for number in range(20))
TEXT = "password of somebody"
NOW = 1_800_000_000.0


def _unread(box: SecretBox, row: str, stored: bytes) -> None:
    with pytest.raises(Unreadable):
        box.open(row, stored)


def _moved(row: str, to: str, _: Path) -> None:
    box = SecretBox(KEY)
    _unread(box, to, box.close(row, TEXT))


def _changed(bit: int, _: Path) -> None:
    box = SecretBox(KEY)
    stored = bytearray(box.close("row", TEXT))
    stored[bit // 8] ^= 1 << bit % 8
    _unread(box, "row", bytes(stored))


def _cut(length: int, _: Path) -> None:
    box = SecretBox(KEY)
    _unread(box, "row", box.close("row", TEXT)[:length])


def _of_another_key(number: int, _: Path) -> None:
    other = Fernet.generate_key()
    _unread(SecretBox(KEY), "row", SecretBox(other).close("row", TEXT) if number % 2 else Fernet(KEY).encrypt(b"x"))


@cache
def _backup() -> tuple[Identity, bytes]:
    """An encrypted backup of an empty pool."""
    identity = Identity.generate()
    with TemporaryDirectory() as directory:
        state = Path(directory, "state")
        (state / "secrets").mkdir(parents=True)
        (state / "secrets" / "database_key").write_bytes(KEY)
        Store(url_of(state / DATABASE), key=KEY, new_site="s").close()
        back_up(state, Path(directory, "backup"), [str(identity.to_public())])
        return identity, Path(directory, "backup").read_bytes()


def _not_restored(content: bytes, where: Path) -> None:
    identity, _ = _backup()
    (where / "key").write_text(f"{identity}\n")
    (where / "backup").write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        restore(where / "state", where / "backup", NOW, where / "key")
    assert caught.value.code.startswith("backup.")
    assert list((where / "state").iterdir()) == []


def _damaged(number: int, where: Path) -> None:
    content = bytearray(_backup()[1])
    content[number * 7919 % len(content) if number >= 200 else number] ^= 1 << number % 8
    _not_restored(bytes(content), where)


def _cut_backup(hundredths: int, where: Path) -> None:
    content = _backup()[1]
    _not_restored(content[: len(content) * hundredths // 100], where)


STORED = 1 + 12 + len(TEXT) + 16
SECRETS: dict[str, Attack] = {
    **{f"{a} in place of {b}": partial(_moved, a, b) for a, b in permutations(ROWS, 2)},
    **{f"bit {bit}": partial(_changed, bit) for bit in range(STORED * 8)},
    **{f"{length} bytes": partial(_cut, length) for length in range(STORED)},
    **{f"another key {number}": partial(_of_another_key, number) for number in range(20)},
}
BACKUPS: dict[str, Attack] = {
    **{f"change {number}": partial(_damaged, number) for number in range(400)},
    **{f"{cut}%": partial(_cut_backup, cut) for cut in range(100)},
}

FAMILIES = (
    Family("secrets moved, cut or changed in the database", "unreadable", SECRETS),
    Family("encrypted backups that are cut or changed", "refused, nothing is restored", BACKUPS),
)
