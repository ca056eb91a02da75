# SPDX-License-Identifier: Apache-2.0
"""Statements that are executed again and again reach the driver as they were compiled the first time.

SQLAlchemy finds what it has compiled by comparing the whole statement, and hands values and rows through many layers:
20 to 45 µs of the processor for what the driver needs 3 to 10 for, sixty times for an operation on a VM. A statement
that is :func:`kept` is known by being the same object. SQLAlchemy still writes its SQL, converts values and names
errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import BindParameter, Connection, Dialect, Executable, Row, bindparam
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound

from orchestrator.store.asked_directly import DirectConnection, DirectStatement

_ASKED: Final = "asked directly"
S = TypeVar("S", bound=Executable)
Values = Mapping[str, Any]
_KEPT: Final[set[Executable]] = set()
_NAMED: Final = ("named_0", "named_1")
_READY: Final[dict[tuple[Executable, str, tuple[str, ...]], _Ready]] = {}
"""By statement, dialect and the names of the values."""


def kept(statement: S) -> S:
    """Of a constant of a module: it is never forgotten. Its values may be no lists for ``IN``."""
    _KEPT.add(statement)
    return statement


class OfFew:
    """A statement about what comes by name, in a list. For one or two names, as nearly always, it is kept."""

    def __init__(self, of: Callable[[Sequence[Any]], Executable]) -> None:
        self._of = of
        params: list[BindParameter[Any]] = [bindparam(name) for name in _NAMED]
        self._few = [kept(of(params[: at + 1])) for at in range(len(params))]

    def __call__(self, names: Collection[str]) -> tuple[Executable, Values]:
        """What :meth:`Statements.execute` takes."""
        if 0 < len(names) <= len(self._few):
            return self._few[len(names) - 1], dict(zip(_NAMED, names, strict=False))
        return self._of(list(names)), {}


class Found:
    """What a statement gave, all of it read already: SQLAlchemy's rows, and the methods of its results."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: Sequence[Any], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def all(self) -> Sequence[Any]:
        return self._rows

    def first(self) -> Any:
        return self._rows[0] if self._rows else None

    def one_or_none(self) -> Any:
        """:raises MultipleResultsFound: there are several"""
        if len(self._rows) > 1:
            raise MultipleResultsFound(f"{len(self._rows)} rows where one was expected")
        return self.first()

    def one(self) -> Any:
        """:raises NoResultFound: there is none; :raises MultipleResultsFound: there are several"""
        row = self.one_or_none()
        if row is None:
            raise NoResultFound("no row where one was expected")
        return row

    def scalars(self) -> Sequence[Any]:
        """The first column."""
        return [row[0] for row in self._rows]

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        row = self.one_or_none()
        return None if row is None else row[0]


class Statements:
    """What is executed in one transaction. ``connection``: for what is to be read row by row."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._driver: Any = None

    def execute(self, statement: Executable, values: Values | Sequence[Values] | None = None) -> Found:
        """As SQLAlchemy's connections do; raises what they raise."""
        if statement not in _KEPT:
            result = self.connection.execute(statement, values)
            return Found(result.all() if result.returns_rows else (), result.rowcount)
        if values is None or isinstance(values, Mapping):
            return self._directly(statement, values or {}, ())
        first, *others = values
        return self._directly(statement, first, others)

    def _directly(self, statement: Executable, values: Values, others: Sequence[Values]) -> Found:
        """``others``: the same again with these; nothing is given back then."""
        dialect = self.connection.dialect
        key = (statement, dialect.name, tuple(values))
        ready = _READY.get(key)
        if ready is None:
            ready = _READY[key] = _Ready(statement, key[2], dialect)
        if self._driver is None:
            self._driver = self.connection.connection.dbapi_connection
        if ready.question is not None and not others:
            return self._asked(ready, ready.question, values)
        cursor, bound = self._driver.cursor(), ready.bound(values)
        try:
            if others:
                cursor.executemany(ready.sql, [bound, *map(ready.bound, others)])
                return Found((), cursor.rowcount)
            cursor.execute(ready.sql, bound)
            return Found(ready.rows(cursor), cursor.rowcount)
        except dialect.loaded_dbapi.Error as error:
            raise _named(self.connection, error, ready.sql, bound) from error
        finally:
            cursor.close()

    def _asked(self, ready: _Ready, question: DirectStatement, values: Values) -> Found:
        bound = ready.bound(values)
        try:
            answer = question.asked(asked_of(self.connection), bound)
            return Found(ready.made(answer.types, answer.rows) if answer.types else (), answer.rowcount)
        except self.connection.dialect.loaded_dbapi.Error as error:
            raise _named(self.connection, error, ready.sql, bound) from error


def asked_of(connection: Connection) -> DirectConnection:
    """Of a connection to PostgreSQL; the same as long as that stands."""
    known: DirectConnection | None = connection.info.get(_ASKED)
    if known is None:
        driver: Any = connection.connection.dbapi_connection
        known = connection.info[_ASKED] = DirectConnection(driver)
    return known


def directly(connection: Connection, sql: str) -> None:
    """Without values, nothing is given back; on PostgreSQL these may be several statements."""
    try:
        if connection.dialect.name == "postgresql":
            asked_of(connection).simply(sql)
            return
        driver: Any = connection.connection.dbapi_connection
        driver.execute(sql)
    except connection.dialect.loaded_dbapi.Error as error:
        raise _named(connection, error, sql, ()) from error


def _named(connection: Connection, error: Any, sql: str, bound: Any) -> BaseException:
    """An error of the driver as SQLAlchemy would have raised it; a connection that is lost is not used again."""
    dialect = connection.dialect
    lost = dialect.is_disconnect(error, connection.connection.dbapi_connection, None)
    if lost:
        connection.invalidate(error)
    error_class = dialect.loaded_dbapi.Error
    made: BaseException = DBAPIError.instance(
        sql, bound, error, error_class, connection_invalidated=lost, dialect=dialect
    )
    return made


class _Ready:
    """A statement as its driver takes it, for values of the same names."""

    __slots__ = ("_columns", "_convert", "_dialect", "_fixed", "_made", "_order", "question", "sql")

    def __init__(self, statement: Any, names: tuple[str, ...], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        state = compiled.construct_expanded_state(dict.fromkeys(names))
        self.sql: str = state.statement
        self.question = DirectStatement(self.sql) if dialect.name == "postgresql" else None
        self._dialect = dialect
        self._order: Sequence[str] | None = state.positiontup
        """None: the driver takes values by name."""
        processors: dict[str, Any] = {**compiled._bind_processors, **state.processors}
        self._fixed = {
            name: processors[name](value) if name in processors else value
            for name, value in state.parameters.items()
            if name not in names
        }
        self._convert = [(name, processors[name]) for name in names if name in processors]
        self._columns = compiled._result_columns
        self._made: tuple[SimpleResultMetaData, Any] | None = None

    def bound(self, values: Values) -> Any:
        """In the form that the driver takes."""
        given = {**self._fixed, **values}
        for name, convert in self._convert:
            given[name] = convert(given[name])
        return given if self._order is None else [given[name] for name in self._order]

    def rows(self, cursor: Any) -> Sequence[Any]:
        """All that the cursor has."""
        if cursor.description is None:
            return ()
        return self.made([told[1] for told in cursor.description], cursor.fetchall)

    def made(self, types: Sequence[Any], fetched: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """SQLAlchemy's rows of what the driver gave. ``types``: what the database calls those of the columns."""
        if self._made is None:
            self._made = self._learnt(types)
        parent, processors = self._made
        index = parent._key_to_index
        return [Row(parent, processors, index, data) for data in fetched()]

    def _learnt(self, types: Sequence[Any]) -> tuple[SimpleResultMetaData, Any]:
        """How values of the columns are converted depends on their types."""
        pairs = zip(self._columns, types, strict=True)
        processors = [one.type._cached_result_processor(self._dialect, told) for one, told in pairs]
        names = [one.keyname for one in self._columns]
        parent = SimpleResultMetaData(names, extra=[tuple(one.objects) for one in self._columns])
        return parent, processors if any(processors) else None
