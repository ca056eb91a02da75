# SPDX-License-Identifier: Apache-2.0
"""Stored secrets, encrypted and bound to their rows: what was written for one cannot be read in another's place."""

from __future__ import annotations

import hashlib
import hmac
import os
from contextlib import suppress
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import bindparam, delete, func, insert, select, update

from orchestrator.core.errors import Bug, Fatal
from orchestrator.core.tenancy.key_ring import secret_keys
from orchestrator.store.statements import Precompiled, Statements
from orchestrator.store.tables import secrets

BOUND: Final = b"\x02"
"""How what is bound begins; what older versions wrote begins with a letter."""
_NONCE: Final = 12


class Unreadable(Exception):
    """It was not written for this row with one of these keys."""


class SecretBox:
    """``ring``: of core/tenancy/key_ring.py."""

    def __init__(self, ring: bytes) -> None:
        keys = secret_keys(ring)
        self._older = MultiFernet([Fernet(key) for key in keys])
        self._keys = [AESGCM(hmac.new(key, b"secrets", hashlib.sha256).digest()) for key in keys]

    def close(self, row: str, text: str) -> bytes:
        """As it is stored, with the newest key."""
        nonce = os.urandom(_NONCE)
        return BOUND + nonce + self._keys[0].encrypt(nonce, text.encode(), row.encode())

    def open(self, row: str, stored: bytes) -> str:
        """:raises Unreadable: also what is not bound to a row"""
        nonce, content = stored[1 : 1 + _NONCE], stored[1 + _NONCE :]
        if stored[:1] != BOUND or len(nonce) < _NONCE:
            raise Unreadable
        for key in self._keys:
            try:
                return key.decrypt(nonce, content, row.encode()).decode()
            except InvalidTag:
                continue
        raise Unreadable

    def closed_again(self, row: str, stored: bytes) -> bytes:
        """The same with the newest key, bound to its row also when an older version wrote it.

        :raises Unreadable: with none of the keys
        """
        if stored[:1] == BOUND:
            return self.close(row, self.open(row, stored))
        try:
            return self.close(row, self._older.decrypt(stored).decode())
        except InvalidToken as error:
            raise Unreadable from error


_PUT_SECRET: Final = Precompiled(insert(secrets))
_SECRET: Final = Precompiled(select(secrets.c.blob).where(secrets.c.id == bindparam("its_id")))


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

    def remove(self, *secret_ids: str) -> None:
        """Gone already is fine."""
        self._db.execute(delete(secrets).where(secrets.c.id.in_(secret_ids)))

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
        ids = self.ids()
        try:
            for secret_id in ids:
                blob = self._db.execute(select(secrets.c.blob).where(secrets.c.id == secret_id)).scalar_one()
                self._put_again(secret_id, blob)
        except Unreadable as error:
            raise _unreadable() from error
        return len(ids)

    def _put_again(self, secret_id: str, blob: bytes) -> None:
        again = self._box.closed_again(secret_id, blob)
        self._db.execute(update(secrets).where(secrets.c.id == secret_id).values(blob=again))


def _unreadable() -> Fatal:
    return Fatal(
        "secret.unreadable",
        "a stored secret cannot be decrypted",
        hint="the key file in the state directory is not the one that it was written with, or it was written elsewhere",
    )
