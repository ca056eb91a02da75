# SPDX-License-Identifier: Apache-2.0
"""Texts that only the server may read."""

from __future__ import annotations

from typing import Protocol


class Secrets(Protocol):
    """Text that must not be readable in the database: kept encrypted, named by an id of at most 100 characters.

    What cannot be decrypted raises Fatal ``secret.unreadable``."""

    def put(self, secret_id: str, text: str) -> None:
        """What had that id is replaced."""

    def find(self, secret_id: str) -> str | None: ...
    def get(self, secret_id: str) -> str:
        """:raises Bug: ``secret.missing``"""

    def ids(self) -> tuple[str, ...]: ...

    def remove(self, secret_id: str) -> None: ...

    def encrypt_again(self) -> int:
        """All of them with the newest key; how many there are.

        :raises Fatal: ``secret.unreadable``
        """
