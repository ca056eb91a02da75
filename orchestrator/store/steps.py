# SPDX-License-Identifier: Apache-2.0
"""Statements about the steps of operations, several steps in one."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, bindparam, case, insert, or_, select, update

from orchestrator.store.statements import Precompiled
from orchestrator.store.tables import steps

ITS_STEPS: Final = Precompiled(
    select(steps).where(steps.c.operation == bindparam("operation_id")).order_by(steps.c.position)
)
CHANGING: Final = ("state", "started_at", "finished_at", "message")
"""Columns of a step."""


@lru_cache
def moved_steps(number: int) -> Precompiled:
    """One statement for several steps of an operation: the driver of PostgreSQL takes longer to be asked for one than
    the database takes for all of them."""
    numbers = range(number)
    places = [steps.c.position == bindparam(f"position_{at}", type_=Integer) for at in numbers]

    def values(name: str) -> ColumnElement[Any]:
        column = steps.c[name]
        given = ((places[at], bindparam(f"{name}_{at}", type_=column.type)) for at in numbers)
        return case(*given, else_=column)

    of_operation = steps.c.operation == bindparam("operation_id")
    return Precompiled(
        update(steps).where(of_operation, or_(*places)).values({name: values(name) for name in CHANGING})
    )


@lru_cache
def added_steps(number: int) -> Precompiled:
    """One statement, as above."""
    names = [column.name for column in steps.c]
    return Precompiled(
        insert(steps).values([{name: bindparam(f"{name}_{at}") for name in names} for at in range(number)])
    )
