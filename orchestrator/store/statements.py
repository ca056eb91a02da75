# SPDX-License-Identifier: Apache-2.0
"""Statements of one transaction. Those that modules keep are compiled once and go to the driver's own cursor.

SQLAlchemy finds what it has compiled by comparing the whole statement, and hands values and rows through many layers:
two to four times the processor time of the driver alone, sixty times for an operation on a VM. It still writes the SQL,
converts values and names errors.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Executable, bindparam
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound

AnyRow = Any
"""A named tuple of the columns that were selected."""
Values = Mapping[str, Any]
_Convert = Callable[[Any], Any]


class Precompiled:
    """A statement that a module keeps. Its values may be no lists for ``IN``."""

    __slots__ = ("_compiled", "statement")

    def __init__(self, statement: Executable) -> None:
        self.statement = statement
        self._compiled: dict[tuple[str, tuple[str, ...]], _Compiled] = {}
        """By the name of the dialect and the names of the values."""

    def for_values(self, values: Values, dialect: Dialect) -> _Compiled:
        key = (dialect.name, tuple(values))
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = _Compiled(self.statement, key[1], dialect)
        return compiled


class InClause:
    """A statement with a list of names for ``IN``, precompiled for lists of 1, 2, 4 names and so on; what a list lacks
    to that is its last name again."""

    _NAMES: Final = tuple(f"name_{at}" for at in range(512))

    def __init__(self, statement_for: Callable[[Sequence[Any]], Executable]) -> None:
        self._statement_for = statement_for
        self._by_size: dict[int, Precompiled] = {}

    def __call__(self, names: Collection[str]) -> tuple[Executable | Precompiled, Values]:
        """Arguments of :meth:`Statements.execute`."""
        given = list(names)
        if not 0 < len(given) <= len(self._NAMES):
            return self._statement_for(given), {}
        size = 1 << (len(given) - 1).bit_length()
        statement = self._by_size.get(size)
        if statement is None:
            statement = Precompiled(self._statement_for([bindparam(name) for name in self._NAMES[:size]]))
            self._by_size[size] = statement
        return statement, dict(zip_longest(self._NAMES[:size], given, fillvalue=given[-1]))


class Rows:
    """All rows of a result, with the methods of SQLAlchemy's results."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: Sequence[AnyRow], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[AnyRow]:
        return iter(self._rows)

    def all(self) -> Sequence[AnyRow]:
        return self._rows

    def first(self) -> AnyRow | None:
        return self._rows[0] if self._rows else None

    def one_or_none(self) -> AnyRow | None:
        """:raises MultipleResultsFound: there are several"""
        if len(self._rows) > 1:
            raise MultipleResultsFound(f"{len(self._rows)} rows where one was expected")
        return self.first()

    def one(self) -> AnyRow:
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
    """Executes statements in one transaction. ``connection``: for what is to be read row by row."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._cursor: Any = None
        """One for the transaction, as each result is read at once."""

    def execute(self, statement: Executable | Precompiled, values: Values | Sequence[Values] | None = None) -> Rows:
        """Several sets of values: once with each, and no rows. Raises what SQLAlchemy's connections raise."""
        if not isinstance(statement, Precompiled):
            result = self.connection.execute(statement, values)
            return Rows(result.all() if result.returns_rows else (), result.rowcount)
        if values is None or isinstance(values, Mapping):
            return self._execute(statement, [values or {}])
        return self._execute(statement, values)

    def _execute(self, statement: Precompiled, sets: Sequence[Values]) -> Rows:
        compiled = statement.for_values(sets[0], self.connection.dialect)
        if self._cursor is None:
            self._cursor = self.connection.connection.cursor()
        cursor, bound = self._cursor, [compiled.bound(values) for values in sets]
        try:
            if len(bound) > 1:
                cursor.executemany(compiled.sql, bound)
                return Rows((), cursor.rowcount)
            cursor.execute(compiled.sql, bound[0])
            return Rows(compiled.rows(cursor), cursor.rowcount)
        except self.connection.dialect.loaded_dbapi.Error as error:
            raise _raised(self.connection, error, compiled.sql, bound) from error


def execute_text(connection: Connection, sql: str, **options: Any) -> None:
    """Without values and rows. ``options``: of the driver's ``execute``."""
    driver: Any = connection.connection.dbapi_connection
    try:
        driver.execute(sql, **options)
    except connection.dialect.loaded_dbapi.Error as error:
        raise _raised(connection, error, sql, ()) from error


def _raised(connection: Connection, error: Any, sql: str, bound: Any) -> BaseException:
    """An error of the driver as SQLAlchemy would have raised it; a connection that is lost is not used again."""
    dialect = connection.dialect
    lost = dialect.is_disconnect(error, connection.connection.dbapi_connection, None)
    if lost:
        connection.invalidate(error)
    error_class = dialect.loaded_dbapi.Error
    wrapped: BaseException = DBAPIError.instance(
        sql, bound, error, error_class, connection_invalidated=lost, dialect=dialect
    )
    return wrapped


class _Compiled:
    """A statement as its driver takes it, for values of the same names."""

    __slots__ = ("_columns", "_convert_columns", "_convert_values", "_dialect", "_order", "_own", "_row", "sql")

    def __init__(self, statement: Any, names: tuple[str, ...], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        expanded = compiled.construct_expanded_state(dict.fromkeys(names))
        self.sql: str = expanded.statement
        self._dialect = dialect
        self._order: Sequence[str] | None = expanded.positiontup
        """None: the driver takes values by name."""
        processors = {
            name: convert
            for name, parameter in compiled.binds.items()
            if (convert := parameter.type.dialect_impl(dialect).bind_processor(dialect)) is not None
        } | dict(expanded.processors)
        self._own = {
            name: processors[name](value) if name in processors else value
            for name, value in expanded.parameters.items()
            if name not in names
        }
        """Values that are written in the statement itself."""
        self._convert_values = [(name, processors[name]) for name in names if name in processors]
        columns = statement.exported_columns
        self._columns = [column.type for column in columns]
        self._row = _row_class(columns.keys())
        self._convert_columns: Sequence[tuple[int, _Convert]] | None = None

    def bound(self, values: Values) -> Any:
        """In the form that the driver takes."""
        given = {**self._own, **values}
        for name, convert in self._convert_values:
            given[name] = convert(given[name])
        return given if self._order is None else [given[name] for name in self._order]

    def rows(self, cursor: Any) -> Sequence[AnyRow]:
        if not self._columns:
            return ()
        if self._convert_columns is None:
            self._convert_columns = self._converters([column[1] for column in cursor.description])
        make = self._row._make
        if not self._convert_columns:
            return list(map(make, cursor.fetchall()))
        return [make(self._converted(values)) for values in cursor.fetchall()]

    def _converted(self, values: Sequence[Any]) -> Sequence[Any]:
        row = list(values)
        for at, convert in self._convert_columns or ():
            row[at] = convert(row[at])
        return row

    def _converters(self, database_types: Sequence[Any]) -> list[tuple[int, _Convert]]:
        """By the position of the column."""
        types = enumerate(zip(self._columns, database_types, strict=True))
        return [
            (at, convert)
            for at, (column, database_type) in types
            if (convert := column.dialect_impl(self._dialect).result_processor(self._dialect, database_type))
        ]


def _row_class(names: Iterable[str]) -> Any:
    return namedtuple("Row", names, rename=True)
