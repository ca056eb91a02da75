# SPDX-License-Identifier: Apache-2.0
"""Encrypted secrets."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from sqlalchemy import bindparam, delete, func, insert, select, update

from orchestrator.core.errors import Bug, Fatal
from orchestrator.store.secret_box import BOUND, SecretBox, Unreadable
from orchestrator.store.statements import Statements, kept
from orchestrator.store.tables import secrets

_PUT_SECRET: Final = kept(insert(secrets))
_SECRET: Final = kept(select(secrets.c.blob).where(secrets.c.id == bindparam("its_id")))
_NO_SECRET: Final = kept(delete(secrets).where(secrets.c.id == bindparam("its_id")))


class Secrets:
    """Encrypted with the key file of the state directory: a copy of the database alone tells nothing."""

    def __init__(self, connection: Statements, box: SecretBox) -> None:
        self._db = connection
        self._box = box

    def put(self, secret_id: str, text: str) -> None:
        """What had that id is replaced."""
        self.remove(secret_id)
        self._db.execute(_PUT_SECRET, {"id": secret_id, "blob": self._box.close(secret_id, text)})

    def find(self, secret_id: str) -> str | None:
        """:raises Fatal: ``secret.unreadable``"""
        blob = self._db.execute(_SECRET, {"its_id": secret_id}).scalar_one_or_none()
        try:
            return None if blob is None else self._box.open(secret_id, blob)
        except Unreadable as error:
            raise _unreadable() from error

    def get(self, secret_id: str) -> str:
        """:raises Bug: ``secret.missing``; :raises Fatal: ``secret.unreadable``"""
        text = self.find(secret_id)
        if text is None:
            raise Bug("secret.missing", "a stored secret is missing")
        return text

    def ids(self) -> tuple[str, ...]:
        return tuple(self._db.execute(select(secrets.c.id).order_by(secrets.c.id)).scalars())

    def remove(self, secret_id: str) -> None:
        self._db.execute(_NO_SECRET, {"its_id": secret_id})

    def bind(self) -> None:
        """Bind what older versions wrote to the rows it is in; what no key reads stays as it is."""
        unbound = func.substr(secrets.c.blob, 1, len(BOUND)) != BOUND
        for row in self._db.execute(select(secrets).where(unbound)).all():
            with suppress(Unreadable):
                self._put_again(row.id, row.blob)

    def encrypt_again(self) -> int:
        """All of them with the newest key; how many there are.

        :raises Fatal: ``secret.unreadable``
        """
        found = self._db.execute(select(secrets.c.id)).scalars()
        try:
            for one in found:
                blob = self._db.execute(select(secrets.c.blob).where(secrets.c.id == one)).scalar_one()
                self._put_again(one, blob)
        except Unreadable as error:
            raise _unreadable() from error
        return len(found)

    def _put_again(self, secret_id: str, blob: bytes) -> None:
        again = self._box.closed_again(secret_id, blob)
        self._db.execute(update(secrets).where(secrets.c.id == secret_id).values(blob=again))


def _unreadable() -> Fatal:
    return Fatal(
        "secret.unreadable",
        "a stored secret cannot be decrypted",
        hint="the key file in the state directory is not the one that it was written with, or it was written elsewhere",
    )
