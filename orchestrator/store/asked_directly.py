# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL asked through libpq, as its driver binds it.

A cursor of the driver takes 35 to 75 µs of the processor for a statement, more than half of it to find out what of
kept statements (statements.py) is known: how they are written, whether they are prepared. Values and rows are converted
by the driver as ever, and errors are its errors.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from psycopg import Connection, OperationalError, errors
from psycopg.abc import Transformer as Adapted
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

_PARAMETER: Final = re.compile(r"%\((\w+)\)s|%%")
_INTEGERS: Final = frozenset({21, 23})
_BIGINT: Final = 20
"""Types of PostgreSQL: the driver says of each number how large it is, and what is prepared is so for these types."""
_PREPARED_MOST: Final = 500
"""In one connection; each takes the database some memory."""
_DONE: Final = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK})


class DirectStatement:
    """A statement as the database takes it: ``$1`` where the driver has a name."""

    __slots__ = ("_formats", "_order", "sql")

    def __init__(self, sql: str) -> None:
        order: list[str] = []

        def placed(found: re.Match[str]) -> str:
            name = found[1]
            if name is None:
                return "%"
            if name not in order:
                order.append(name)
            return f"${order.index(name) + 1}"

        self.sql = _PARAMETER.sub(placed, sql).encode()
        self._order = tuple(order)
        self._formats = [PyFormat.TEXT] * len(order)

    def asked(self, of: DirectConnection, values: Mapping[str, Any]) -> Answer:
        """:raises psycopg.Error: what the driver raises"""
        adapted = Transformer(of.driver)
        bound = adapted.dump_sequence([values[name] for name in self._order], self._formats)
        types = tuple(_BIGINT if one in _INTEGERS else one for one in adapted.types or ())
        return Answer(of.execute(self.sql, bound, types), adapted)


class Answer:
    """Rows as the driver reads them."""

    __slots__ = ("_adapted", "_result")

    def __init__(self, result: PGresult, adapted: Adapted) -> None:
        self._result = result
        self._adapted = adapted

    @property
    def rowcount(self) -> int:
        return self._result.command_tuples or 0

    @property
    def types(self) -> Sequence[int]:
        """Of the columns; empty: it is a statement without rows."""
        return [self._result.ftype(at) for at in range(self._result.nfields)]

    def rows(self) -> Sequence[tuple[Any, ...]]:
        self._adapted.set_pgresult(self._result)
        return self._adapted.load_rows(0, self._result.ntuples, tuple)


class DirectConnection:
    """One connection, and what it has prepared."""

    def __init__(self, driver: Connection[Any]) -> None:
        """The driver itself may prepare nothing on it: with its own it would drop these at each rollback."""
        self.driver = driver
        self._libpq = driver.pgconn
        self._prepared: dict[tuple[bytes, tuple[int, ...]], bytes | None] = {}
        """None: it was asked once; whatever is asked again is prepared."""
        self._numbers = itertools.count()

    def execute(self, sql: bytes, bound: Sequence[Any], types: Sequence[int]) -> PGresult:
        key = (sql, tuple(types))
        name = self._prepared.get(key, b"")
        if name is None:
            name = f"kept_{next(self._numbers)}".encode()
            self._done(self._libpq.prepare(name, sql, types))
            self._prepared[key] = name
        elif not name:
            if len(self._prepared) < _PREPARED_MOST:
                self._prepared[key] = None
            return self._done(self._libpq.exec_params(sql, bound, types))
        return self._done(self._libpq.exec_prepared(name, bound))

    def simply(self, sql: str) -> None:
        """Without values, nothing is given back; these may be several statements."""
        self._done(self._libpq.exec_(sql.encode()))

    def _done(self, result: PGresult) -> PGresult:
        if result.status in _DONE:
            return result
        if self._libpq.status == ConnStatus.BAD:
            raise OperationalError(f"the connection is lost: {result.get_error_message()}")
        raise errors.error_from_result(result)
