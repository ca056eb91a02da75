# SPDX-License-Identifier: Apache-2.0
"""Snapshots, host actions, tokens and results as plain JSON and back, strictly typed.

An action with a field we do not know is refused, since we would do less than was asked.
A snapshot may carry more than we know: the agent may be newer than we are.

Knows the kinds of field that core's dataclasses have, no others; on a host, importing a general library for this
took longer than everything else the agent does at its start.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, TypeVar

from orchestrator.core.errors import InvalidInput, Unknown
from orchestrator.core.host_actions import ACTIONS, ActionResult, FencingToken, HostAction
from orchestrator.core.snapshot import DomainSnapshot, HostSnapshot

T = TypeVar("T")

_PRIMITIVES = (str, int, bool)
_UNIONS = (typing.Union, types.UnionType)


class _Mismatch(Exception):
    """A value is not of its field's type; the text says where and why."""


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Field name → its type, whether it may be left out."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: (hints[field.name], field.default is not dataclasses.MISSING) for field in dataclasses.fields(kind)
    }


def _structured(value: object, kind: Any, where: str, *, strict: bool) -> Any:
    if kind in _PRIMITIVES:
        if type(value) is not kind:  # True is an int to Python, and "7" is none to us
            raise _Mismatch(f"{where}: {kind.__name__} expected, not {type(value).__name__}")
        return value
    origin = typing.get_origin(kind)
    if origin is tuple:
        return _items(value, typing.get_args(kind)[0], where, strict=strict)
    if origin is typing.Literal:
        if value not in typing.get_args(kind):
            raise _Mismatch(f"{where}: {ascii(value)[:40]} is none of {', '.join(typing.get_args(kind))}")
        return value
    if origin in _UNIONS:  # only ever "something or None"
        (something,) = (option for option in typing.get_args(kind) if option is not type(None))
        return None if value is None else _structured(value, something, where, strict=strict)
    return _object(value, kind, where, strict=strict)


def _items(value: object, kind: Any, where: str, *, strict: bool) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _Mismatch(f"{where}: a list expected, not {type(value).__name__}")
    return tuple(_structured(item, kind, f"{where}[{number}]", strict=strict) for number, item in enumerate(value))


def _object(value: object, kind: Any, where: str, *, strict: bool) -> Any:
    if not isinstance(value, dict):
        raise _Mismatch(f"{where}: an object expected, not {type(value).__name__}")
    fields = _fields(kind)
    unknown = sorted(str(name) for name in value.keys() - fields.keys())
    if strict and unknown:
        raise _Mismatch(f"{where}: no such field: {ascii(unknown[0])[:60]}")
    missing = [name for name, (_, optional) in fields.items() if not optional and name not in value]
    if missing:
        raise _Mismatch(f"{where}: {missing[0]} is missing")
    return kind(
        **{
            name: _structured(value[name], field, f"{where}.{name}", strict=strict)
            for name, (field, _) in fields.items()
            if name in value
        }
    )


def _sent_by_controller(data: object, kind: type[T]) -> T:
    try:
        found: T = _object(data, kind, kind.__name__, strict=True)
    except _Mismatch as error:
        raise InvalidInput(
            "agent.request_invalid",
            f"the request holds no valid {kind.__name__}",
            hint="upgrade the agent: the controller may be newer than it",
            details=str(error),
        ) from error
    return found


def _sent_by_agent(data: object, kind: type[T]) -> T:
    try:
        found: T = _object(data, kind, kind.__name__, strict=False)
    except _Mismatch as error:
        raise Unknown(
            "agent.answer_invalid",
            f"the agent's answer holds no valid {kind.__name__}",
            hint="upgrade the agent with vgpuctl host upgrade-agent",
            details=str(error),
        ) from error
    return found


def action_to_dict(action: HostAction) -> dict[str, Any]:
    """``{"action": class name, …fields}``."""
    return {"action": type(action).__name__, **dataclasses.asdict(action)}


def action_from_dict(data: dict[str, object]) -> HostAction:
    """The inverse of :func:`action_to_dict`.

    :raises InvalidInput: ``agent.unknown_action`` or ``agent.request_invalid``
    """
    name = data.get("action")
    kind = ACTIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidInput(
            "agent.unknown_action",
            f"this agent has no action {ascii(name)[:60]}",
            hint="upgrade the agent with vgpuctl host upgrade-agent",
        )
    return _sent_by_controller({key: value for key, value in data.items() if key != "action"}, kind)


def token_to_dict(token: FencingToken) -> dict[str, Any]:
    return dataclasses.asdict(token)


def token_from_dict(data: object) -> FencingToken:
    """:raises InvalidInput: ``agent.request_invalid``"""
    return _sent_by_controller(data, FencingToken)


def result_to_dict(result: ActionResult) -> dict[str, Any]:
    return dataclasses.asdict(result)


def result_from_dict(data: object) -> ActionResult:
    """:raises Unknown: ``agent.answer_invalid``"""
    return _sent_by_agent(data, ActionResult)


def snapshot_to_dict(snapshot: HostSnapshot) -> dict[str, Any]:
    found: dict[str, Any] = _plain(snapshot)
    return found


def _plain(value: Any) -> Any:
    """As ``dataclasses.asdict``, which copies deeply what cannot change and takes ten times as long."""
    if value is None or type(value) in _PRIMITIVES:
        return value
    if type(value) is tuple:
        return tuple(_plain(item) for item in value)
    kind: Any = type(value)
    return {name: _plain(getattr(value, name)) for name in _fields(kind)}


def snapshot_from_dict(data: object) -> HostSnapshot:
    """:raises Unknown: ``agent.answer_invalid``"""
    return _sent_by_agent(data, HostSnapshot)


@dataclasses.dataclass(frozen=True)
class _OneDomain:
    domain: DomainSnapshot | None


def domain_to_dict(domain: DomainSnapshot | None) -> dict[str, Any]:
    return {"domain": _plain(domain)}


def domain_from_dict(data: object) -> DomainSnapshot | None:
    """:raises Unknown: ``agent.answer_invalid``"""
    return _sent_by_agent(data, _OneDomain).domain
