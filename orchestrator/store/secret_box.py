# SPDX-License-Identifier: Apache-2.0
"""Stored secrets, encrypted and bound to their rows: what was written for one cannot be read in another's place."""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from orchestrator.core.tenancy.key_ring import secret_keys

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
