# SPDX-License-Identifier: Apache-2.0
"""Only the newest attempt at an operation may write: a controller that was paused wakes up and is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


class Suspended(Exception):
    """This run ends here and the operation does not: shutdown, or another run has taken it over."""


@contextmanager
def attempt(store: Store, operation_id: str, number: int) -> Iterator[Transaction]:
    """A writing transaction of that attempt; no later one begins before it ends.

    :raises Suspended: another attempt has begun
    """
    with store.begin() as tx:
        if not tx.operations.is_newest(operation_id, number):
            raise Suspended
        yield tx
