# SPDX-License-Identifier: Apache-2.0
"""Texts that only the server may read."""

from __future__ import annotations

from typing import Protocol


class Secrets(Protocol):
    """Text that must not be readable in the database: kept encrypted, named by an id."""

    def put(self, secret_id: str, text: str) -> None: ...
    def get(self, secret_id: str) -> str:
        """:raises Bug: ``secret.missing``"""

    def remove(self, secret_id: str) -> None: ...
